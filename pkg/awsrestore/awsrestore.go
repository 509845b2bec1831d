// Package awsrestore makes a table of a control plane on AWS safe to serve after AWS has
// restored it from a backup. AWS restores a table under another name, so the stack's
// functions do not serve it until a deployment of the stack names it.
package awsrestore

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/blob/s3"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog/cloudwatch"
	"github.com/fairlead/fairlead/pkg/queue/sqs"
	"github.com/fairlead/fairlead/pkg/seal/kms"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
)

// Table prepares the restored table of the control plane whose functions' names start with
// "fairlead-" and the stage. See dynamo.Prepare and control.AfterRestore. It also makes the
// missing queues of the runners and log groups of the installs, with the settings of the
// stack's functions. Blobs that the table names exist again: from earlier versions in the stack's bucket, or from the bucket copies,
// which has copies of the blobs of a lost Region; "": there is none. The credentials of cfg must permit to read the function
// controlapi, to change and write the table, to create queues and log groups, to read versions of blobs in both buckets, and to
// write and delete blobs. Table refuses the table that
// the functions serve, unless they refuse it as a copy. It is safe to repeat after an error.
func Table(ctx context.Context, cfg aws.Config, stage, table, copies string) (control.Restored, error) {
	c, err := environment(ctx, cfg, "fairlead-"+stage+"-controlapi")
	if err != nil {
		return control.Restored{}, err
	}
	queues, err := sqs.New(cfg, sqs.Options{Prefix: c.QueuePrefix, MaxReceives: sqs.MaxReceives, Make: true, Now: time.Now})
	if err != nil {
		return control.Restored{}, err
	}
	groups, err := cloudwatch.NewGroups(cfg, cloudwatch.GroupOptions{Prefix: c.LogGroupPrefix, Days: c.LogRetention, Subscriber: c.LogSubscriber})
	if err != nil {
		return control.Restored{}, err
	}
	blobs, err := s3.New(cfg, s3.Options{Bucket: c.Blobs, Copies: copies})
	if err != nil {
		return control.Restored{}, err
	}
	plane := control.New(control.Deps{Store: store.New(dynamo.New(cfg, table)), Queue: queues, Records: groups, Blobs: blobs, Sealer: kms.New(cfg, time.Now, c.SealKey),
		IDs: fairlead.RandomIDs(time.Now), Now: time.Now, Logger: slog.New(slog.DiscardHandler), Intervals: control.Metered()})
	if c.Table == table {
		if _, err := plane.OpenTable(ctx, table); err == nil {
			return control.Restored{}, fairlead.Invalid(fairlead.CodeUsage, "the functions of stage %s serve table %s now; name the restored table, or all running jobs would be refused", stage, table)
		} else if !errors.Is(err, control.ErrTableIsCopy) {
			return control.Restored{}, err
		}
	}
	if _, err := dynamo.Prepare(ctx, cfg, table); err != nil {
		return control.Restored{}, err
	}
	return plane.AfterRestore(ctx, table)
}

// environment returns the configuration of the function controlapi of the stack.
func environment(ctx context.Context, cfg aws.Config, function string) (config.ControlAPI, error) {
	var c config.ControlAPI
	out, err := lambda.NewFromConfig(awsapi.Bound(cfg, 30*time.Second)).GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{FunctionName: &function})
	if err != nil {
		return c, awsapi.Classify(ctx, "Lambda", "read the configuration of function "+function, err)
	}
	var environ []string
	if out.Environment != nil {
		for name, value := range out.Environment.Variables {
			if strings.HasPrefix(name, "FAIRLEAD_") {
				environ = append(environ, name+"="+value)
			}
		}
	}
	fs := flag.NewFlagSet(function, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	if err := config.Load(&c, fs, nil, environ); err != nil {
		return c, fmt.Errorf("the environment of function %s: %w", function, err)
	}
	return c, nil
}
