package plugin

import (
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/changeset"
)

// Planned describes a saved plan with the digest. A plan without changes has an empty change set.
func Planned(saved []byte, noOp bool, changes *changeset.Builder, base *changeset.Base) *wire.Plan {
	return &wire.Plan{Digest: Digest(saved), NoOp: noOp, Changes: wire.Changes(changes.Counts()), ChangeSet: changes.Set(base)}
}
