package engine

// Change is one change of one item, from the table's stream of changes. The
// changes of one item arrive in the order of their commits. Each can arrive more
// than once.
type Change struct {
	Key Key
	Old *Item // before the change; nil: no item, or not in the stream
	New *Item // after the change; nil: the item was deleted
}
