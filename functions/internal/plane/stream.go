package plane

import (
	"context"
	"errors"
	"log/slog"

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
		return answerOf(e, d.Dispatch(ctx, recordsOf(e)))
	}
}

// Audited returns the handler of batches of the table's stream that appends entries to the audit. A batch is done when a
// checkpoint has its entries: if one fails, Lambda delivers the batch again, and the auditor finds the entries that it has
// appended.
func Audited(a *control.Auditor, logger *slog.Logger) func(context.Context, dynamo.StreamEvent) (events.DynamoDBEventResponse, error) {
	return func(ctx context.Context, e dynamo.StreamEvent) (events.DynamoDBEventResponse, error) {
		ctx, cancel := withMargin(ctx)
		defer cancel()
		moved := control.Moved{}
		done, err := a.Append(ctx, recordsOf(e), moved)
		if err != nil {
			logger.Error("entries were not appended to the audit; their records are delivered again", "error", err)
		}
		if err := a.Checkpoint(ctx, moved); err != nil {
			return events.DynamoDBEventResponse{}, err
		}
		if done == len(e.Records) {
			return answerOf(e, nil)
		}
		return answerOf(e, []int{done})
	}
}

func recordsOf(e dynamo.StreamEvent) []control.Record {
	records := make([]control.Record, len(e.Records))
	for i, r := range e.Records {
		change, err := r.Change()
		records[i] = control.Record{ID: r.EventID, At: r.Time(), Change: change, Err: err}
	}
	return records
}

// answerOf returns the answer that makes Lambda deliver the records at the indexes again.
func answerOf(e dynamo.StreamEvent, again []int) (events.DynamoDBEventResponse, error) {
	answer := events.DynamoDBEventResponse{BatchItemFailures: []events.DynamoDBBatchItemFailure{}}
	for _, i := range again {
		sequence := e.Records[i].Body.Sequence
		if sequence == "" { // Lambda has no identifier for the whole batch; an error repeats the whole batch
			return events.DynamoDBEventResponse{}, errors.New("a record without a sequence number was not handled: the batch comes again")
		}
		answer.BatchItemFailures = append(answer.BatchItemFailures, events.DynamoDBBatchItemFailure{ItemIdentifier: sequence})
	}
	return answer, nil
}
