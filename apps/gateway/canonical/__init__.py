"""The inside language of the gateway. Pure: no Django, no network, no store, no wire format."""
