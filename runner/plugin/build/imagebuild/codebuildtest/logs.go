package codebuildtest

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
)

// Logs writes the logs of builds to CloudWatch Logs, as CodeBuild does. Safe for concurrent use.
type Logs struct {
	// Client returns a client with the credentials of a role, an ARN.
	Client func(role string) (*cloudwatchlogs.Client, error)

	mu   sync.Mutex
	made map[string]bool // by stream
}

// Write writes lines to a stream, which it creates if necessary. It is a function for Machine.Log.
func (l *Logs) Write(role, group, stream string, lines []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // a build ends after its test
	defer cancel()
	client, err := l.Client(role)
	if err != nil {
		return err
	}
	if !l.made[stream] {
		if _, err := client.CreateLogStream(ctx, &cloudwatchlogs.CreateLogStreamInput{LogGroupName: &group, LogStreamName: &stream}); err != nil {
			return err
		}
		if l.made == nil {
			l.made = map[string]bool{}
		}
		l.made[stream] = true
	}
	var events []types.InputLogEvent
	for _, line := range lines {
		if line == "" {
			line = " " // CloudWatch refuses an empty event
		}
		events = append(events, types.InputLogEvent{Message: &line, Timestamp: aws.Int64(time.Now().UnixMilli())})
	}
	_, err = client.PutLogEvents(ctx, &cloudwatchlogs.PutLogEventsInput{LogGroupName: &group, LogStreamName: &stream, LogEvents: events})
	return err
}
