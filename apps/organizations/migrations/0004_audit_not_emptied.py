from django.db import migrations

# The trigger that refuses changes looks at rows; emptying shows it none.
NOT_EMPTIED = """
CREATE FUNCTION refuse_audit_emptying() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit entries are never changed: % refused', TG_OP
        USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER audit_not_emptied BEFORE TRUNCATE ON organizations_auditentry
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_emptying();
"""
EMPTIABLE = """
DROP TRIGGER audit_not_emptied ON organizations_auditentry;
DROP FUNCTION refuse_audit_emptying();
"""


class Migration(migrations.Migration):
    dependencies = [("organizations", "0003_rates_and_hedging")]
    operations = [migrations.RunSQL(NOT_EMPTIED, EMPTIABLE)]
