package runnerstack

// Explains reports whether the table comments has the resource.
func Explains(id string) bool {
	_, ok := comments[id]
	return ok
}

// Reason returns the first characters of a statement's comment.
func Reason(sid string) string { return statements[sid][:20] }

// DefaultActions returns the reasons of the default of AppActions, and ArguedActions those of
// the statements with a wildcard, by Sid.
func DefaultActions() map[string]string {
	out := map[string]string{}
	for _, d := range defaultActions {
		out[d.action] = d.why
	}
	return out
}

func ArguedActions() map[string]map[string]string { return argued }
