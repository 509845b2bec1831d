package fairlead

// Actor is who made a request, as records keep it. The zero Actor is the control plane itself or a runner.
type Actor struct {
	// Token is the identifier of the caller: of the API token, or of the user. Its name is that of the releases in which each
	// caller was a token.
	Token string `json:"token,omitempty"`
	Name  string `json:"name,omitempty"` // the caller's name at the time of the request
	Kind  string `json:"kind,omitempty"` // the kind of the principal; "": an API token
}

// Actors are who created a record, and who changed it last. The control plane itself, agents and steps are no actors: what
// they change leaves Actors as it is.
type Actors struct {
	CreatedBy Actor `json:"created_by,omitzero"`
	ChangedBy Actor `json:"changed_by,omitzero"`
}

// Stamp records that by writes the record, which is new or exists.
func (a *Actors) Stamp(by Actor, isNew bool) {
	if isNew {
		a.CreatedBy = by
	}
	a.ChangedBy = by
}
