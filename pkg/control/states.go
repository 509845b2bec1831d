package control

// States is the states of components with their locks, and the saved plans. Safe for
// concurrent use.
type States struct {
	*Kernel
	fleet   *Fleet
	catalog *Catalog
}

// newStates returns the states of a kernel.
func newStates(k *Kernel, fleet *Fleet, catalog *Catalog) *States {
	return &States{Kernel: k, fleet: fleet, catalog: catalog}
}
