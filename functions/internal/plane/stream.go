package plane

import (
	"context"
	"errors"

	"github.com/aws/aws-lambda-go/events"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
)

// Stream returns the handler of batches of the table's stream. Its answer names the records that
// Lambda must deliver again. For this the event source must have ReportBatchItemFailures.
func Stream(d *control.Dispatcher) func(context.Context, dynamo.StreamEvent) (events.DynamoDBEventResponse, error) {
	return func(ctx context.Context, e dynamo.StreamEvent) (events.DynamoDBEventResponse, error) {
		ctx, cancel := withMargin(ctx)
		defer cancel()
		records := make([]control.Record, len(e.Records))
		for i, r := range e.Records {
			change, err := r.Change()
			records[i] = control.Record{ID: r.EventID, At: r.Time(), Change: change, Err: err}
		}
		answer := events.DynamoDBEventResponse{BatchItemFailures: []events.DynamoDBBatchItemFailure{}}
		for _, i := range d.Dispatch(ctx, records) {
			sequence := e.Records[i].Body.Sequence
			if sequence == "" { // Lambda has no identifier for the whole batch; an error repeats the whole batch
				return events.DynamoDBEventResponse{}, errors.New("a record without a sequence number was not dispatched: the batch comes again")
			}
			answer.BatchItemFailures = append(answer.BatchItemFailures, events.DynamoDBBatchItemFailure{ItemIdentifier: sequence})
		}
		return answer, nil
	}
}
