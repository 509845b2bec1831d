// Package bucket implements terraform.Buckets with the client of S3.
package bucket

import (
	"github.com/fairlead/fairlead/runner/internal/providers"
	"github.com/fairlead/fairlead/runner/plugin/terraform"
	"github.com/fairlead/fairlead/runner/plugin/terraform/mirror"
	"github.com/fairlead/fairlead/runner/plugin/terraform/statebucket"
)

// Buckets implements terraform.Buckets.
type Buckets struct{}

// State implements terraform.Buckets.
func (Buckets) State(b terraform.StateBucket, env map[string]string) (terraform.StateLook, error) {
	look, err := statebucket.New(statebucket.Bucket(b), env)
	if err != nil {
		return nil, err // not a nil *Look in an interface
	}
	return look, nil
}

// Mirror implements terraform.Buckets.
func (Buckets) Mirror(at providers.MirrorLocation, env map[string]string) (mirror.Mirror, error) {
	return OpenMirror(at, env)
}
