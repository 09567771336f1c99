"""How a failure is read: which rule speaks of it, what caused it, which node it is blamed on."""
