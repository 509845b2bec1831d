package runners

import (
	"context"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// Protocol is the version of the runner protocol that the control plane speaks, which
// is the API's version. Agents with an older version of the protocol are shown as outdated.
const Protocol = "1"

// The version that a runner's agents should run comes from the runner's configuration,
// or from an update channel that several runners follow. The control plane replaces no
// agent, because the customer decides what runs in the customer's account.

// Channel is an update channel: the agent version for the runners that follow it.
type Channel struct {
	fairlead.Actors
	Name    string
	Version string
	Image   string // image of this version, by digest; "": not set
	Set     time.Time
}

// Channels lists update channels by name.
func (f *Fleet) Channels(ctx context.Context, q fairlead.PageQuery) ([]Channel, string, error) {
	p, err := f.Store.Channels(ctx, q)
	return kernel.List(p, err, func(r store.Channel) Channel { return Channel(r) })
}

// Patterns of the values that a channel can be set to.
const (
	VersionPattern = `^[0-9A-Za-z][0-9A-Za-z.+_-]{0,62}$`
	ImagePattern   = `^[a-z0-9./:_-]+@sha256:[0-9a-f]{64}$`
)

var versionPattern, imagePattern = pattern.New(VersionPattern), pattern.New(ImagePattern)

// SetChannel sets the version of a channel, and its image by digest. The parameter image
// may be empty. Only an operator can set a channel, because all orgs use it.
func (f *Fleet) SetChannel(ctx context.Context, by kernel.User, name, version, image string) (Channel, error) {
	if !by.Operator {
		return Channel{}, operatorOnly("only an operator sets update channels")
	}
	if err := fairlead.CheckName("channel", name); err != nil {
		return Channel{}, err
	}
	if !versionPattern.MatchString(version) {
		return Channel{}, fairlead.Invalid(fairlead.CodeInvalidVersion, "%q is not a version of the form v1.2.3", version)
	}
	if image != "" && !imagePattern.MatchString(image) {
		return Channel{}, fairlead.Invalid(fairlead.CodeInvalidImage, "the image of a channel needs a digest, IMAGE@sha256:…, because a tag can move to another image")
	}
	var out Channel
	err := f.Transact(ctx, "set channel "+name, func(tx *kernel.Tx) error {
		r, err := store.Optional(f.Store.Channel(ctx, name))
		if err != nil {
			return err
		}
		if out = Channel(r.V); r.Version > 0 && out.Version == version && out.Image == image {
			return nil
		}
		r.V = store.Channel{Name: name, Version: version, Image: image, Set: tx.Now}
		out = Channel(r.V)
		tx.PutChannel(r)
		return nil
	})
	return out, err
}

// DeleteChannel deletes a channel. Runners that follow it may then run any version.
func (f *Fleet) DeleteChannel(ctx context.Context, by kernel.User, name string) error {
	if !by.Operator {
		return operatorOnly("only an operator sets update channels")
	}
	return f.Transact(ctx, "delete channel "+name, func(tx *kernel.Tx) error {
		r, err := f.Store.Channel(ctx, name)
		if err != nil {
			return err
		}
		tx.DeleteChannel(r)
		return nil
	})
}

// followRelease sets the runner's version or channel from its configuration. It refuses
// a channel that does not exist, which is probably a typing error.
func followRelease(tx *kernel.Tx, r *store.Runner, spec *runnerspec.Spec) error {
	version, channel := spec.Release()
	if channel != "" && channel != r.Channel {
		if _, err := tx.Store.Channel(tx.Ctx, channel); err != nil {
			return err
		}
	}
	r.Version, r.Channel = version, channel
	return nil
}

// Wanted is the version that a runner's agents should run.
type Wanted struct {
	Version string
	Image   string // by digest; "": not set
	Channel string // the channel that sets it; "": the runner's configuration sets it
}

// Pins reports whether the runner's configuration pins another version than the given
// one: an agent with this version then gets no jobs. A channel pins nothing, because a
// change of the channel would otherwise stop each runner that follows it, until its
// customer has replaced the agent.
func Pins(n store.RunnerName, version string) bool {
	return n.Version != "" && n.Channel == "" && !(&Wanted{Version: n.Version}).Runs(version)
}

// wanted returns the version that the agents of a runner should run, or nil if they may run
// any version.
func wanted(tx *kernel.Tx, version, channel string) (*Wanted, error) {
	if channel == "" {
		if version == "" {
			return nil, nil
		}
		return &Wanted{Version: version}, nil
	}
	r, err := store.Optional(tx.Store.Channel(tx.Ctx, channel))
	if err != nil || r.Version == 0 { // the channel was deleted
		return nil, err
	}
	return &Wanted{Version: r.V.Version, Image: r.V.Image, Channel: channel}, nil
}

// Runs reports whether version is the wanted version. If w is nil, any version is
// wanted.
func (w *Wanted) Runs(version string) bool {
	return w == nil || strings.TrimPrefix(w.Version, "v") == strings.TrimPrefix(version, "v")
}
