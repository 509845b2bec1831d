package plugin

import (
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/changeset"
)

// Planned describes a saved plan with the digest that a person approves. A plan without changes has an empty change set.
func Planned(digest string, noOp bool, changes *changeset.Builder, base *changeset.Base) *wire.Plan {
	return &wire.Plan{Digest: digest, NoOp: noOp, Changes: wire.Changes(changes.Counts()), ChangeSet: changes.Set(base)}
}
