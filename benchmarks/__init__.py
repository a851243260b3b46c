"""How labkit stands against its peers and its own targets on the machine at hand: `make bench`. No tests here."""
