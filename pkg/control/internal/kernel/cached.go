package kernel

// Cached returns what load returns, and the same value again for the key in this Tx, so that
// a commit on many components reads what they share once. The caller must not change the
// value. An error is not kept.
func Cached[T any](tx *Tx, key string, load func() (T, error)) (T, error) {
	if v, ok := tx.cached[key].(T); ok {
		return v, nil
	}
	v, err := load()
	if err == nil {
		if tx.cached == nil {
			tx.cached = map[string]any{}
		}
		tx.cached[key] = v
	}
	return v, err
}
