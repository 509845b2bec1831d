package terraform

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/terraform/statebucket"
)

// expectVersions looks whether the bucket of the state keeps earlier versions,
// without which a state that is written over by mistake is gone, and with it the
// only record of what there is.
//
// A state does not begin in a bucket that keeps none: so far nothing is lost by
// a refusal, and to switch it on takes one command. An install that is at work
// is only warned: its changes and its removal do not wait for a switch in the
// customer's account. Nor do they where the bucket cannot be asked, because the
// role of the operation may not, or its credentials come by a way that the tool
// alone knows.
func (j *job) expectVersions(ctx context.Context) error {
	in := j.spec.State.In
	b := j.state.backend()
	if b.kind != storageS3 || in == nil {
		return nil
	}
	warn := func(format string, args ...any) {
		fmt.Fprintf(j.env.Log, "[fairlead: warning: "+format+"]\n", args...)
	}
	look, err := statebucket.New(statebucket.Bucket{Name: in.Bucket, Region: in.Region, Endpoint: in.Endpoint}, j.run.env)
	if err != nil {
		warn("whether bucket %s keeps versions of states was not looked at: %v", in.Bucket, err)
		return nil
	}
	versioned, err := look.Versioned(ctx)
	if err != nil {
		warn("whether bucket %s keeps versions of states could not be found out: %v", in.Bucket, j.env.Mask(err.Error()))
		return nil
	}
	if versioned {
		return nil
	}
	key, _ := b.config["key"].(string)
	if there, err := look.Holds(ctx, key); j.spec.Operation == opPlan && err == nil && !there {
		return plugin.Errorf(fairlead.ReasonStateUnversioned, "bucket %s does not keep versions, and no state begins in such a bucket: one that is written over by mistake would be gone. "+
			"Nothing was done. `aws s3api put-bucket-versioning --bucket %s --versioning-configuration Status=Enabled` switches it on.", in.Bucket, in.Bucket)
	}
	warn("bucket %s does not keep versions: a state that is written over by mistake is gone", in.Bucket)
	return nil
}
