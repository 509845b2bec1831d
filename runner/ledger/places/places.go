// Package places opens the ledger that an agent's file names.
package places

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/ledger"
	"github.com/fairlead/fairlead/runner/ledger/file"
	"github.com/fairlead/fairlead/runner/ledger/kubernetes"
)

// Opener opens ledgers, with the credentials that this process finds. It sends no request.
type Opener struct {
	// Bucket opens a ledger in a bucket: s3.Open. It is passed in, because a light step links no client of AWS. nil: this program
	// opens none.
	Bucket func(ctx context.Context, at runnerspec.Ledger, region string) (ledger.Ledger, error)
}

// Open returns the ledger at a location. region is that of a bucket; "": the region of the process.
func (o Opener) Open(ctx context.Context, at runnerspec.Ledger, region string) (ledger.Ledger, error) {
	switch {
	case at.Store == runnerspec.StoreFile:
		return file.New(at.Name), nil
	case at.Store == runnerspec.StoreKubernetes:
		return kubernetes.InCluster(at.Name)
	case at.Store == runnerspec.StoreS3 && o.Bucket != nil:
		return o.Bucket(ctx, at, region)
	}
	return nil, fmt.Errorf("this program has no ledger in %q", at.Store)
}
