"""How whatever an agent starts is confined: a policy rendered for bwrap or Seatbelt."""
