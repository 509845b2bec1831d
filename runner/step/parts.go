package step

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/cancelmark"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/ledger"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/terraform"
)

// Parts are the parts of a step that need large packages: the clients of AWS, and the builder of artifacts. These packages
// need more than half of the CPU time of a step's start, and most jobs need none of them. Package parts has all parts; the zero value
// has none. An agent gives a program without the parts only jobs that need none.
type Parts struct {
	// TakeRole assumes the AWS role of the job's operation, and passes each secret of the role's credentials to hide. It writes
	// files only to folder, which only the job's tool may read. nil: a job with a role fails before it changes anything.
	TakeRole func(ctx context.Context, w RoleWanted, folder string, hide func(secret string)) (*Role, error)
	// ProveRole proves the AWS role of this process for a challenge. region is STS's; "": the process's region. nil: a step whose
	// launch token is bound to a role does not start.
	ProveRole func(ctx context.Context, region string, c awsiam.Challenge) (awsiam.Proof, error)
	// ReadSecret reads a secret with all its fields from a store of AWS, as secretsource.Source.AWS. nil: a job with such a secret
	// fails before it changes anything.
	ReadSecret func(ctx context.Context, region string, from runnerspec.Reference) (string, error)
	// OpenLedger opens the customer's ledger in a bucket. region is as for ReadSecret. nil: a job of a runner with such a ledger fails
	// before it starts anything.
	OpenLedger func(ctx context.Context, at runnerspec.Ledger, region string) (ledger.Ledger, error)
	// OpenLog opens the log of an attempt in CloudWatch Logs. nil: the log goes through the API.
	OpenLog func(ctx context.Context, at LogPlace) (DirectLog, error)
	// FindMarker returns the function that looks for a marker. nil: a cancellation arrives with the renewal of the lease.
	FindMarker func(m Marker) func(context.Context) (bool, error)
	// Buckets opens buckets of S3. nil: a job that needs one fails before it changes anything.
	Buckets terraform.Buckets
	// Plugins returns the plugins that build artifacts. environ has the variables of the step, of which the plugins' tools get those
	// in passEnv. nil: this program builds nothing.
	Plugins func(passEnv, environ []string) plugin.Registry
}

// RoleWanted names the AWS role to assume and the job that it is for.
type RoleWanted struct {
	Role       string // ARN
	ExternalID string // "": none
	Region     string // region of the tool and of STS; "": STS uses the process's region, and the tool gets no region
	Install    string // install ID; "": the session has no such tag
	Job        string // job ID; also the session's name
	Policy     string // session policy of the first credentials; "": they may do what the role may
}

// Role is an assumed role whose credentials the tool of a job can get until Close.
type Role struct {
	// Environ holds environment variables for the tool. If a value is "", the tool must not have that variable at all.
	Environ map[string]string
	// SetPolicy gives tools that start after it credentials with another session policy; "": none. It returns ErrPolicySize if AWS
	// refuses the policy for its size, and then nothing has changed.
	SetPolicy func(ctx context.Context, policy string) error
	Close     func() error
}

// ErrPolicySize reports that AWS refuses a session policy for its size.
var ErrPolicySize = errors.New("the session policy is too large")

// LogPlace is the place of an attempt's log in CloudWatch Logs.
type LogPlace struct {
	Region, Group string
	// Credentials returns credentials that are valid now. It is called for each request. Safe for concurrent use.
	Credentials func(context.Context) (wire.CloudAccess, error)
	HTTP        *http.Client
	Now         func() time.Time
}

// DirectLog writes a log without the API.
type DirectLog interface {
	// Put stores data at the offset of the stream. A repeated Put with the same bytes changes nothing.
	Put(ctx context.Context, s joblog.Stream, offset int64, data []byte) error
	// End marks the end of the stream.
	End(ctx context.Context, i joblog.Info) error
}

// Marker is the place of an attempt's cancel marker, and the access to it.
type Marker struct {
	Place       cancelmark.Place
	Region      string
	Credentials func(context.Context) (wire.CloudAccess, error) // as in LogPlace
	HTTP        *http.Client
	Now         func() time.Time
}
