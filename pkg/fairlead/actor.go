package fairlead

// Actor is the API token that made a request, as records keep it. The zero Actor is the control
// plane itself or a runner.
type Actor struct {
	Token string `json:"token,omitempty"` // ID of the token
	Name  string `json:"name,omitempty"`  // the token's name at the time of the request
}
