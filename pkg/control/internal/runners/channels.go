package runners

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// Protocol is the version of the runner protocol that the control plane speaks,
// the API's own; agents that speak an older one are shown as outdated.
const Protocol = "1"

// Which version a runner's agents are to run is said by its configuration, for
// one runner, or by a channel, for all that follow it. Nobody is replaced from
// here: what runs in a customer's account is theirs to change.

// Channel is an update channel: the version that those who follow it are to run.
type Channel struct {
	Name    string
	Version string
	Image   string // of that version, by digest; "": nobody said it
	Set     time.Time
}

// Channels lists update channels by name.
func (f *Fleet) Channels(ctx context.Context, q fairlead.PageQuery) ([]Channel, string, error) {
	p, err := f.Store.Channels(ctx, q)
	return kernel.List(p, err, func(r store.Channel) Channel { return Channel(r) })
}

// The regular expressions of what a channel is set to.
const (
	VersionPattern = `^[0-9A-Za-z][0-9A-Za-z.+_-]{0,62}$`
	ImagePattern   = `^[a-z0-9./:_-]+@sha256:[0-9a-f]{64}$`
)

// SetChannel says which version a channel is; image, by digest, may be empty.
// The operator alone may: it is every org's.
func (f *Fleet) SetChannel(ctx context.Context, by kernel.User, name, version, image string) (Channel, error) {
	if !by.Operator {
		return Channel{}, operatorOnly("update channels are set by whoever runs the control plane")
	}
	if err := fairlead.CheckName("channel", name); err != nil {
		return Channel{}, err
	}
	if !regexp.MustCompile(VersionPattern).MatchString(version) {
		return Channel{}, fairlead.Invalid(fairlead.CodeInvalidVersion, "%q is no version: v1.2.3 is one", version)
	}
	if image != "" && !regexp.MustCompile(ImagePattern).MatchString(image) {
		return Channel{}, fairlead.Invalid(fairlead.CodeInvalidImage, "the image of a channel is named with its digest, IMAGE@sha256:…: a tag may become another image")
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

// DeleteChannel forgets a channel. Who follows it may run any version then.
func (f *Fleet) DeleteChannel(ctx context.Context, by kernel.User, name string) error {
	if !by.Operator {
		return operatorOnly("update channels are set by whoever runs the control plane")
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

// followRelease gives the runner the version or the channel of its configuration. A
// channel that nobody has set is a slip of the pen.
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

// Wanted is the version that a runner's agents are to run.
type Wanted struct {
	Version string
	Image   string // by digest; "": nobody said it
	Channel string // that says it; "": the runner's configuration does
}

// WantedOf returns what is wanted of the agents of a session's runner; nil: any
// version will do.
func (f *Fleet) WantedOf(ctx context.Context, s Session) (*Wanted, error) {
	n, err := f.Store.RunnerName(ctx, s.Runner)
	if err != nil {
		return nil, err
	}
	return wanted(f.Reading(ctx), n.V.Version, n.V.Channel)
}

func wanted(tx *kernel.Tx, version, channel string) (*Wanted, error) {
	if channel == "" {
		if version == "" {
			return nil, nil
		}
		return &Wanted{Version: version}, nil
	}
	r, err := store.Optional(tx.Store.Channel(tx.Ctx, channel))
	if err != nil || r.Version == 0 { // it was deleted
		return nil, err
	}
	return &Wanted{Version: r.V.Version, Image: r.V.Image, Channel: channel}, nil
}

// Runs reports whether an agent of the version is what is wanted.
func (w *Wanted) Runs(version string) bool {
	return w == nil || strings.TrimPrefix(w.Version, "v") == strings.TrimPrefix(version, "v")
}
