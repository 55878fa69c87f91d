"""What may not pass: guardrail configuration, rules, violations."""
