package dynamo_test

import (
	"crypto/rand"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/store/dynamo"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/tools/dynamodblocal"
)

// The images of a stream record equal the items that Get returned before and after the
// change.
func TestStreamHasEveryChange(t *testing.T) {
	cfg, name := table(t)
	e := dynamo.New(cfg, name)
	k := engine.Key{Partition: "JOB#1", Sort: "JOB"}
	var seen []engine.Item // after each commit
	commit := func(w engine.Write, more ...engine.Write) {
		t.Helper()
		if err := e.Commit(t.Context(), rand.Text(), append([]engine.Write{w}, more...)...); err != nil {
			t.Fatal(err)
		}
		if it, err := e.Get(t.Context(), k); err == nil {
			seen = append(seen, it)
		}
	}
	put := func(cond engine.Precondition, body string) engine.Write {
		return engine.Write{Item: engine.Item{Key: k, Body: []byte(body), Due: &engine.Key{Partition: "DUE", Sort: body + "x"},
			List: &engine.Key{Partition: "L", Sort: "1"}, Expires: time.Unix(2_000_000_000, 0)}, If: cond}
	}
	other := engine.Write{Item: engine.Item{Key: engine.Key{Partition: "JOB#2", Sort: "JOB"}, Body: []byte{0, 255, 10}}, If: engine.Absent()}
	commit(put(engine.Absent(), "1"))
	commit(put(engine.Version(1), ""), other) // a transaction
	commit(put(engine.Any(), "3"))
	commit(engine.Write{Op: engine.Delete, Item: engine.Item{Key: k}, If: engine.Version(3)})

	var changes []engine.Change
	sequences := map[string]bool{}
	for _, text := range dynamodblocal.Records(t, *cfg.BaseEndpoint, name) {
		var r dynamo.StreamRecord
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		c, err := r.Change()
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if age := time.Since(r.Time()); age < -time.Hour || age > time.Hour {
			t.Errorf("a change was made at %s", r.Time())
		}
		sequences[r.Body.Sequence] = true
		if c.Key == k {
			changes = append(changes, c)
		} else if c.Key != other.Item.Key || c.Old != nil || string(c.New.Body) != string(other.Item.Body) {
			t.Errorf("the change of the other item is %+v", c)
		}
	}
	if len(sequences) != 5 || sequences[""] {
		t.Errorf("the 5 records have the sequence numbers %v", sequences)
	}
	want := []engine.Change{{Key: k, New: &seen[0]}, {Key: k, Old: &seen[0], New: &seen[1]}, {Key: k, Old: &seen[1], New: &seen[2]}, {Key: k, Old: &seen[2]}}
	if !reflect.DeepEqual(changes, want) {
		t.Errorf("the changes are\n%+v\nwant\n%+v", changes, want)
	}
}

// lambdaRecord is a record as Lambda delivers it, with all its fields.
const lambdaRecord = `{
  "eventID": "c81e728d9d4c2f636f067f89cc14862c", "eventName": "MODIFY", "eventVersion": "1.1", "eventSource": "aws:dynamodb", "awsRegion": "eu-central-1",
  "dynamodb": {
    "ApproximateCreationDateTime": 1.79525E9,
    "Keys": {"pk": {"S": "JOB#1"}, "sk": {"S": "JOB"}},
    "NewImage": {"pk": {"S": "JOB#1"}, "sk": {"S": "JOB"}, "v": {"N": "2"}, "t": {"S": "com_1"}, "b": {"B": "e30="}},
    "OldImage": {"pk": {"S": "JOB#1"}, "sk": {"S": "JOB"}, "v": {"N": "1"}, "t": {"S": "com_0"}, "b": {"B": "e30="}},
    "SequenceNumber": "4421584500000000017450439091", "SizeBytes": 59, "StreamViewType": "NEW_AND_OLD_IMAGES"
  },
  "eventSourceARN": "arn:aws:dynamodb:eu-central-1:123456789012:table/fairlead/stream/2026-11-20T00:00:00.000"
}`

func TestInvalidRecordDoesNotFailTheBatch(t *testing.T) {
	for _, c := range []struct {
		name, old, new string
		key            bool // whether the change must have the key
		fine           bool
	}{
		{name: "complete record", key: true, fine: true},
		{name: "an unused field has another type", old: `"SizeBytes": 59`, new: `"SizeBytes": {"more": [1]}`, key: true, fine: true},
		{name: "the version is text", old: `"v": {"N": "2"}`, new: `"v": {"S": "2"}`, key: true},
		{name: "the version is no number", old: `"v": {"N": "2"}`, new: `"v": {"N": "two"}`, key: true},
		{name: "the body is missing", old: `, "b": {"B": "e30="}}`, new: `}`, key: true},
		{name: "the body is not base64", old: `"e30="`, new: `"{}"`, key: true},
		{name: "an image is no object", old: `"NewImage": {`, new: `"NewImage": [], "x": {`, key: true},
		{name: "there is no image", old: `Image"`, new: `Picture"`, key: true},
		{name: "the image is of another item", old: `"NewImage": {"pk": {"S": "JOB#1"}`, new: `"NewImage": {"pk": {"S": "JOB#2"}`, key: true},
		{name: "the key has one part", old: `"Keys": {"pk": {"S": "JOB#1"}, `, new: `"Keys": {`},
		{name: "there is no key", old: `"Keys"`, new: `"Locks"`},
	} {
		text := lambdaRecord
		if c.old != "" {
			if text = strings.ReplaceAll(text, c.old, c.new); text == lambdaRecord {
				t.Fatalf("%s: the replacement changed nothing", c.name)
			}
		}
		var r dynamo.StreamRecord
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Errorf("%s: %v: this error would fail the whole batch", c.name, err)
			continue
		}
		if r.Body.Sequence != "4421584500000000017450439091" || r.Time().Unix() != 1_795_250_000 {
			t.Errorf("%s: sequence number %q of %s", c.name, r.Body.Sequence, r.Time())
		}
		ch, err := r.Change()
		if (err == nil) != c.fine {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := ch.Key == (engine.Key{Partition: "JOB#1", Sort: "JOB"}); got != c.key {
			t.Errorf("%s: the key is %s", c.name, ch.Key)
		}
	}
}
