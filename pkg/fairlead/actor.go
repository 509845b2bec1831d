package fairlead

// Actor is who asked for something, as records keep it: by which API token. The
// zero Actor is the control plane itself, or a runner.
type Actor struct {
	Token string `json:"token,omitempty"` // identifier of the token
	Name  string `json:"name,omitempty"`  // of the token, at that time
}
