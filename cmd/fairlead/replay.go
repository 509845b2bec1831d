//go:build !light

package main

import (
	"context"
	"fmt"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead/fairlead/pkg/deadletter"
)

// replay replays the dead letters of a control plane on AWS, with the credentials of the
// person who runs the program.
func replay(ctx context.Context, o cli.ReplayOptions) (cli.Replayed, error) {
	cfg, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(o.Region))
	if err != nil {
		return nil, fmt.Errorf("find your AWS configuration: %w", err)
	}
	stack := "fairlead-" + o.Stage
	replayer := deadletter.New(cfg, deadletter.Options{Prefix: stack + "-", Discard: o.Discard})
	var out cli.Replayed
	for _, name := range o.Queues {
		queue, err := replayer.QueueOf(ctx, stack, deadletter.Queues()[name])
		if err != nil {
			return out, err
		}
		err = replayer.Replay(ctx, queue, func(m deadletter.Message) {
			out = append(out, cli.DeadLetter{Queue: name, Message: m.ID, Outcome: string(m.Outcome), Target: m.Target, Detail: m.Detail})
		})
		if err != nil {
			return out, fmt.Errorf("replay the dead letters of %s: %w", name, err)
		}
	}
	return out, nil
}
