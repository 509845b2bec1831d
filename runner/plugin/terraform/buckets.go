package terraform

import (
	"context"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/providers"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/terraform/mirror"
)

// Buckets opens buckets of S3, of AWS or of a compatible server, with the region, the endpoint and the credentials that a tool's
// environment has. It sends no request. It is an interface because a client of S3 delays the start of each step that links one.
// Package bucket implements it.
type Buckets interface {
	// State returns the bucket in which a tool stores states.
	State(b StateBucket, env map[string]string) (StateLook, error)
	// Mirror returns the mirror of providers in a bucket.
	Mirror(at providers.MirrorLocation, env map[string]string) (mirror.Mirror, error)
}

// StateBucket is the location of a bucket with states.
type StateBucket struct {
	Name, Region string
	Endpoint     string // "": AWS
}

// StateLook inspects a bucket with states. Safe for concurrent use.
type StateLook interface {
	// Versioned reports whether the bucket keeps earlier versions of overwritten objects.
	Versioned(ctx context.Context) (bool, error)
	// Holds reports whether an object with this key exists.
	Holds(ctx context.Context, key string) (bool, error)
}

// noBuckets returns the error of a job that needs a bucket in a program without a client of S3.
func noBuckets(why string) error {
	return plugin.Errorf(fairlead.ReasonInternal, "this program of the runner has no client of S3, and the job needs one: %s. "+
		"Nothing was changed. Retry the job; if it fails again, install the same release of all the runner's programs", why)
}
