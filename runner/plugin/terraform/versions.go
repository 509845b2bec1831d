package terraform

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// expectVersions checks whether the state's bucket keeps earlier versions of objects. Without them, a state that is
// overwritten by mistake is lost, and with it the only record of the resources.
//
// A plan that would create the first state in an unversioned bucket is refused. At this time nothing is lost yet, and one
// command turns versions on. For an existing install, the job only logs a warning, because changes and the removal of the
// install must not wait for a setting in the customer's account. If the bucket cannot be inspected, the job also only logs a
// warning. This happens if the operation's role lacks the permission, or if only the tool finds the credentials.
func (j *job) expectVersions(ctx context.Context) error {
	in := j.spec.State.In
	b := j.state.backend()
	if b.kind != storageS3 || in == nil {
		return nil
	}
	warn := func(format string, args ...any) {
		fmt.Fprintf(j.env.Log, "[fairlead: warning: "+format+"]\n", args...)
	}
	if j.p.cfg.Buckets == nil {
		return noBuckets("its state is in bucket " + in.Bucket)
	}
	inspector, err := j.p.cfg.Buckets.State(StateBucket{Name: in.Bucket, Region: in.Region, Endpoint: in.Endpoint}, j.run.env)
	if err != nil {
		warn("it was not checked whether bucket %s keeps versions of states: %v", in.Bucket, err)
		return nil
	}
	versioned, err := inspector.Versioned(ctx)
	if err != nil {
		warn("it could not be checked whether bucket %s keeps versions of states: %v", in.Bucket, j.env.Mask(err.Error()))
		return nil
	}
	if versioned {
		return nil
	}
	key, _ := b.config["key"].(string)
	if exists, err := inspector.Holds(ctx, key); j.spec.Operation == opPlan && err == nil && !exists {
		return plugin.Errorf(fairlead.ReasonStateUnversioned, "bucket %s does not keep versions, so no first state may be created in it: a state that is overwritten by mistake would be gone. "+
			"Nothing was changed. To turn versions on, run `aws s3api put-bucket-versioning --bucket %s --versioning-configuration Status=Enabled`.", in.Bucket, in.Bucket)
	}
	warn("bucket %s does not keep versions: a state that is overwritten by mistake is gone", in.Bucket)
	return nil
}
