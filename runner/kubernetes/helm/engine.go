// Package helm plans, applies and destroys one Helm release for a component of an install.
//
// A plan renders the chart once, with read access to the cluster, and saves what it rendered: manifests, hooks, notes and
// custom resource definitions. An apply gives Helm these bytes and no template, so a template with a random value cannot
// differ between approval and apply. The release that Helm records is compared with the plan before Helm changes an object.
//
// The package writes only in Apply. Every write first checks that no other attempt has taken over the release.
package helm

import (
	"fmt"
	"io"
	"time"

	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/runner/kubernetes/podimage"
)

// fieldManager is the manager of the fields that Helm sets. It is the name that Helm's own command line uses, so releases of
// both can follow each other without conflicts.
const fieldManager = "helm"

// Helm takes the name of the field manager only from this variable. Otherwise it uses the name of the running program, so a
// renamed program would conflict with itself.
func init() { kube.ManagedFieldsManager = fieldManager }

const (
	defaultTimeout = 10 * time.Minute
	defaultHistory = 10
)

// Owner names what a release belongs to. A release of one owner is never changed for another.
type Owner struct {
	Install   string
	Component string
}

// Options are the settings of a component.
type Options struct {
	// Timeout limits each wait: for one hook, for all objects to become ready, for all objects to be gone. 0: 10 minutes.
	Timeout time.Duration
	// RollbackOnFailure makes Helm undo a failed apply: it returns to the last good revision, or uninstalls a first one.
	RollbackOnFailure bool
	// WaitForJobs makes the apply also wait until Jobs that are no hooks complete.
	WaitForJobs bool
	// History is the number of revisions that Helm keeps. 0: 10.
	History int
}

// Engine plans and applies one release for one attempt of a job. Its methods are not safe for concurrent use.
type Engine struct {
	Config *rest.Config        // the connection to the cluster
	Log    io.Writer           // gets one line for each step, masked
	Mask   func(string) string // masks the secrets of the job in a text

	Owner     Owner
	Release   string // name of the release
	Namespace string // namespace of the release

	Images *podimage.Replacement // of the images that the chart renders; nil: they stay

	// Job and Epoch identify the attempt. Epochs count the attempts of one job, so epochs of two jobs have no order.
	Job   string
	Epoch int64

	Options Options
}

// Planned is the result of a plan.
type Planned struct {
	Saved   []byte             // the saved plan; it holds secrets in plain text
	NoOp    bool               // the release and its objects are as the chart demands; Changes is empty
	Changes []changeset.Change // masked
	Base    *changeset.Base    // the revision on which the plan was made; nil: there is no release
	Outputs map[string]any     // of the release as it is, if NoOp is set and the plan is not of a destroy: no apply follows that would return them
	// ClientDiff is set if the server refused a dry run, so at least one change was computed without the server's defaults and
	// admission. These changes are marked as unverified.
	ClientDiff bool
}

// Applied is the result of an apply.
type Applied struct {
	Outputs map[string]any // release, namespace, revision, chart_version, app_version; nil after a destroy
}

func (e *Engine) timeout() time.Duration {
	if e.Options.Timeout > 0 {
		return e.Options.Timeout
	}
	return defaultTimeout
}

func (e *Engine) history() int {
	if e.Options.History > 0 {
		return e.Options.History
	}
	return defaultHistory
}

func (e *Engine) mask(s string) string {
	if e.Mask == nil {
		return s
	}
	return e.Mask(s)
}

func (e *Engine) logf(format string, args ...any) {
	if e.Log != nil {
		fmt.Fprintln(e.Log, e.mask(fmt.Sprintf(format, args...)))
	}
}
