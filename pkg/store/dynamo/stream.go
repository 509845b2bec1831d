package dynamo

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/store/engine"
)

// StreamEvent is the event that Lambda passes to a function that reads the table's stream:
// the records of one shard, in order. StreamRecord.Change decodes the images of each record
// separately. So an invalid record does not fail the whole batch, as it would with the
// types of aws-lambda-go.
type StreamEvent struct {
	Records []StreamRecord `json:"Records"`
}

// StreamRecord is one change of one item, with the new and the old image.
type StreamRecord struct {
	EventID string `json:"eventID"`
	Body    struct {
		Sequence string          `json:"SequenceNumber"`              // identifies the record to Lambda
		Seconds  float64         `json:"ApproximateCreationDateTime"` // since 1970
		Keys     json.RawMessage `json:"Keys"`
		Old      json.RawMessage `json:"OldImage"`
		New      json.RawMessage `json:"NewImage"`
	} `json:"dynamodb"`
}

// Time returns the approximate time of the change, to the second.
func (r StreamRecord) Time() time.Time {
	s := r.Body.Seconds
	if math.IsNaN(s) || s < 0 || s > 1<<40 {
		s = 0
	}
	return time.Unix(int64(s), 0).UTC()
}

// Change decodes the record. An error means that this package did not write the record, so
// a retry does not help. If the key is readable, the change has the key also with an error.
func (r StreamRecord) Change() (engine.Change, error) {
	var c engine.Change
	keys, err := wireImage(r.Body.Keys)
	if err != nil {
		return c, fmt.Errorf("keys of stream record %q: %w", r.EventID, err)
	}
	d := decoder{a: keys}
	c.Key = d.key()
	if d.err != nil {
		return engine.Change{}, fmt.Errorf("keys of stream record %q: %w", r.EventID, d.err)
	}
	for _, image := range []struct {
		from json.RawMessage
		to   **engine.Item
	}{{r.Body.Old, &c.Old}, {r.Body.New, &c.New}} {
		a, err := wireImage(image.from)
		if err != nil {
			return c, fmt.Errorf("image of %s in stream record %q: %w", c.Key, r.EventID, err)
		}
		if a == nil {
			continue
		}
		it, err := decode(a)
		if err != nil {
			return c, fmt.Errorf("stream record %q: %w", r.EventID, err)
		}
		if it.Key != c.Key {
			return c, fmt.Errorf("stream record %q has an image of %s and the key of %s", r.EventID, it.Key, c.Key)
		}
		if note, ok := a[AttrNote].(*types.AttributeValueMemberB); ok && image.to == &c.New {
			it.Note = note.Value
		}
		*image.to = &it
	}
	if c.Old == nil && c.New == nil {
		return c, fmt.Errorf("stream record %q of %s has no image", r.EventID, c.Key)
	}
	return c, nil
}

// wireValue is an attribute in DynamoDB's JSON. It has only the types that this package
// writes.
type wireValue struct {
	S *string
	N *string
	B *[]byte // base64 in JSON
}

// wireImage decodes an image, or keys. It returns nil if text is empty or null.
func wireImage(text json.RawMessage) (attributes, error) {
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	var image map[string]wireValue
	if err := json.Unmarshal(text, &image); err != nil {
		return nil, err
	}
	if image == nil {
		return nil, errors.New("no attributes")
	}
	a := attributes{}
	for name, v := range image {
		switch {
		case v.S != nil:
			a[name] = &types.AttributeValueMemberS{Value: *v.S}
		case v.N != nil:
			a[name] = &types.AttributeValueMemberN{Value: *v.N}
		case v.B != nil:
			a[name] = &types.AttributeValueMemberB{Value: *v.B}
		}
	}
	return a, nil
}
