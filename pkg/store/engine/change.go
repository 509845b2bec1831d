package engine

// Change is one change of one item, as a table's stream of changes tells it.
// The changes of one item come in the order of their commits; each may come
// more than once.
type Change struct {
	Key Key
	Old *Item // as it was before; nil: there was none, or the stream does not say
	New *Item // as it is now; nil: it is gone
}
