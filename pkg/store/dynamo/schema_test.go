package dynamo_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// An operator sees the keys in the console and types them into its query form.
func TestKeysAreReadableInTheConsole(t *testing.T) {
	cfg, name := table(t)
	client := dynamodb.NewFromConfig(cfg)
	described, err := client.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &name})
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]types.ScalarAttributeType)
	for _, a := range described.Table.AttributeDefinitions {
		got[*a.AttributeName] = a.AttributeType
	}
	const s = types.ScalarAttributeTypeS
	if want := (map[string]types.ScalarAttributeType{"pk": s, "sk": s, "lpk": s, "lsk": s, "dpk": s, "dsk": s}); !maps.Equal(got, want) {
		t.Errorf("the key attributes are %v, want %v", got, want)
	}

	it := engine.Item{
		Key:  engine.Key{Partition: "ORG#o#APP", Sort: "Büro 語 𝄞"},
		List: &engine.Key{Partition: "ORG#o#JOBS", Sort: "job_1"},
		Due:  &engine.Key{Partition: "DUE", Sort: "2026-11-20T12:00:00.000Z#job_1"},
	}
	if err := dynamo.New(cfg, name).Commit(t.Context(), rand.Text(), engine.Write{Item: it}); err != nil {
		t.Fatal(err)
	}
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	for _, c := range []struct {
		index *string
		where string
		key   *engine.Key
	}{
		{nil, "pk = :p AND sk = :s", &it.Key},
		{aws.String("list"), "lpk = :p AND lsk = :s", it.List},
		{aws.String("due"), "dpk = :p AND dsk = :s", it.Due},
	} {
		out, err := client.Query(t.Context(), &dynamodb.QueryInput{
			TableName: &name, IndexName: c.index, KeyConditionExpression: &c.where,
			ExpressionAttributeValues: map[string]types.AttributeValue{":p": text(c.key.Partition), ":s": text(c.key.Sort)},
		})
		if err != nil || len(out.Items) != 1 {
			t.Errorf("%s: %v", c.where, err)
			continue
		}
		if sk, ok := out.Items[0]["sk"].(*types.AttributeValueMemberS); !ok || sk.Value != it.Key.Sort {
			t.Errorf("%s: the sort key is %#v", c.where, out.Items[0]["sk"])
		}
	}
}

// A page of the largest items must not need the memory of 500 items.
func TestPagesAreBoundedInBytes(t *testing.T) {
	cfg, name := table(t)
	e := dynamo.New(cfg, name)
	for partition, c := range map[string]struct{ items, size int }{
		"few large":  {20, 300_000},
		"many small": {120, 50_000},
	} {
		for i := range c.items {
			w := write(fmt.Sprintf("%03d", i), engine.Absent())
			w.Item.Key.Partition, w.Item.Body = partition, make([]byte, c.size)
			w.Item.List = &engine.Key{Partition: partition, Sort: w.Item.Key.Sort}
			if err := e.Commit(t.Context(), rand.Text(), w); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		what        string
		query       engine.Query
		least, most int // items of the first page
		all         int
	}{
		// Each response has 1 MB, which is 3 or 4 items. The engine joins responses until
		// they exceed 4 MiB.
		{"of the table", engine.Query{Partition: "few large"}, 14, 17, 20},
		{"of the table, backward", engine.Query{Partition: "few large", Backward: true}, 14, 17, 20},
		// The engine joins batches of 100 items until they exceed 4 MiB.
		{"of an index", engine.Query{Index: engine.List, Partition: "many small"}, 100, 100, 120},
		{"of an index, backward", engine.Query{Index: engine.List, Partition: "many small", Backward: true}, 100, 100, 120},
	} {
		var got []string
		pages := 0
		for q := c.query; pages == 0 || q.After != ""; pages++ {
			page, err := e.Query(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(page.Items); pages == 0 && (n < c.least || n > c.most) {
				t.Errorf("%s: the first page has %d items, want %d to %d", c.what, n, c.least, c.most)
			}
			for _, it := range page.Items {
				got = append(got, it.Key.Sort)
			}
			q.After = page.Next
		}
		if len(got) != c.all || pages != 2 {
			t.Errorf("%s: %d items on %d pages, want %d on 2", c.what, len(got), pages, c.all)
		}
		for i, s := range got {
			if want := fmt.Sprintf("%03d", i); !c.query.Backward && s != want {
				t.Errorf("%s: item %d is %s, want %s", c.what, i, s, want)
			} else if want := fmt.Sprintf("%03d", c.all-1-i); c.query.Backward && s != want {
				t.Errorf("%s: item %d is %s, want %s", c.what, i, s, want)
			}
		}
	}
}

// The client sends the cursor, so an invalid cursor is the client's error. DynamoDB would
// report an invalid request, as if it were an error of the control plane.
func TestForgedCursorIsInvalid(t *testing.T) {
	e := dynamo.New(unreachable(), "t") // no cursor here causes a request
	for _, bad := range []string{"", "\xff", "a\x00", strings.Repeat("x", 3000)} {
		for _, q := range []engine.Query{
			{Partition: "p", After: engine.WriteCursor(bad)},
			{Partition: "p", After: engine.WriteCursor("other"), Prefix: "job"},
			{Index: engine.List, Partition: "p", After: engine.WriteCursor(bad, "p", "s")},
			{Index: engine.List, Partition: "p", After: engine.WriteCursor("1", bad, "s")},
			{Index: engine.Due, Partition: "p", After: engine.WriteCursor("1", "p", bad)},
		} {
			if _, err := e.Query(t.Context(), q); fairlead.CodeOf(err) != "bad-cursor" || errors.Is(err, engine.ErrNotFound) {
				t.Errorf("%+v: got %v", q, err)
			}
		}
	}
}
