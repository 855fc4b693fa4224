"""Parties of a federation called churn, and certificates for them."""

from datetime import UTC, datetime, timedelta

from laser_vfl.security.authority import new_key
from laser_vfl.security.identity import Identity, client_of, coordinator_of

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
COORDINATOR = coordinator_of("churn")
BANK = client_of("churn", "bank")
SHOP = client_of("churn", "shop")
CRM = Identity("churn", "application", "crm", "bank")
ANN = Identity("churn", "operator", "ann")
PARTIES = {"coordinator": COORDINATOR, "bank": BANK, "bank-crm": CRM, "operator-ann": ANN}


def vouched(authority, identity, days=30, now=NOW):
    return authority.vouch(identity, new_key().public_key(), days, now)


def value(certificate, kind):
    return certificate.extensions.get_extension_for_class(kind).value
