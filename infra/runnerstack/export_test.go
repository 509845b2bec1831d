package runnerstack

// Explains reports whether the table comments has the resource.
func Explains(id string) bool {
	_, ok := comments[id]
	return ok
}

// Reason returns the first characters of a statement's comment.
func Reason(sid string) string { return statements[sid][:20] }
