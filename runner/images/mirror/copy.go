package mirror

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/regclient/regclient"
	"github.com/regclient/regclient/types"
	"github.com/regclient/regclient/types/manifest"
	"github.com/regclient/regclient/types/ref"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// copy copies the image, then what belongs to it, and writes the tag last.
func (e *Engine) copy(ctx context.Context, s saved, begin func() error) error {
	source, err := ref.New(s.Source)
	if err != nil {
		return plugin.Errorf(fairlead.ReasonPlanStale, "the saved plan names no image: plan again")
	}
	target := e.Target.ref()
	if err := begin(); err != nil {
		return err
	}
	m, err := e.copyImage(ctx, source, s.Digest, s.Extras)
	if err != nil {
		return err
	}
	if s.Tag == "" {
		return nil
	}
	if err := e.Client.ManifestPut(ctx, target.SetTag(s.Tag), m); err != nil {
		return e.Client.failure(ctx, err, target.Registry, "tagging the copied image "+e.address())
	}
	fmt.Fprintf(e.Log, "%s@%s\n", e.address(), s.Digest)
	return nil
}

// copyImage copies an image from a repository, then what belongs to it. It returns the copied manifest.
func (e *Engine) copyImage(ctx context.Context, source ref.Ref, digest string, extras []extra) (manifest.Manifest, error) {
	target := e.Target.ref()
	if err := e.copyOne(ctx, source.SetDigest(digest), target.SetDigest(digest)); err != nil {
		return nil, err
	}
	for _, x := range extras {
		to := target.SetDigest(x.Digest)
		if x.Tag != "" {
			to = target.SetTag(x.Tag)
		}
		if err := e.copyOne(ctx, source.SetDigest(x.Digest), to); err != nil {
			return nil, err
		}
	}
	// A registry that accepted other content would give it to the cluster later. The client verifies the digest of what it gets.
	m, err := e.Client.ManifestGet(ctx, target.SetDigest(digest))
	if err != nil {
		return nil, e.Client.failure(ctx, err, target.Registry, "reading the copied image "+e.address())
	}
	return m, nil
}

// copies is how often a copy begins. A registry that restarts has forgotten the uploads in progress and refuses their next part, and
// the library does not begin an upload again. What the registry has by then is not sent again.
const copies = 3

// copyOne copies one image or one manifest that belongs to it.
func (e *Engine) copyOne(ctx context.Context, from, to ref.Ref) error {
	for n := 1; ; n++ {
		// Without the recursion, the library takes the manifest of an index for a proof of its platforms.
		p := &progress{log: e.Log, last: map[string]time.Time{}}
		err := e.Client.ImageCopy(ctx, from, to, regclient.ImageWithForceRecursive(), regclient.ImageWithCallback(p.report))
		p.end()
		if err == nil {
			return nil
		}
		failed := e.Client.failure(ctx, err, from.Registry+" or "+to.Registry, "copying "+from.CommonName()+" to "+e.address())
		if n == copies || ctx.Err() != nil || plugin.ReasonOf(failed) != fairlead.ReasonRegistryUnreachable {
			return failed
		}
		fmt.Fprintf(e.Log, "The copy was interrupted and begins again: %v\n", failed)
		e.Client.forget()
	}
}

// progressEvery is the time between two lines about the same layer.
const progressEvery = 10 * time.Second

// progress writes a line for each layer and manifest of one copy, and for large layers now and then. Safe for concurrent use.
type progress struct {
	log io.Writer

	mu    sync.Mutex
	last  map[string]time.Time // by layer
	ended bool
}

// report is the library's callback.
func (p *progress) report(kind types.CallbackKind, instance string, state types.CallbackState, cur, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if instance == "" || p.ended {
		return
	}
	switch state {
	case types.CallbackSkipped:
		fmt.Fprintf(p.log, "%s %s: is there\n", kindName(kind), instance)
	case types.CallbackFinished:
		fmt.Fprintf(p.log, "%s %s: copied, %d bytes\n", kindName(kind), instance, total)
	case types.CallbackActive:
		if time.Since(p.last[instance]) >= progressEvery {
			p.last[instance] = time.Now()
			fmt.Fprintf(p.log, "%s %s: %d of %d bytes\n", kindName(kind), instance, cur, total)
		}
	}
}

// end stops the lines. The library's ticker can report a layer once more after the copy returned, while the engine writes to the log.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}

func kindName(kind types.CallbackKind) string {
	if kind == types.CallbackManifest {
		return types.CallbackManifest.String()
	}
	return "layer"
}
