package dynamo_test

import (
	"context"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
)

// A person names a table that does not hold a control plane's records, or a restore that left
// an index out. Prepare changes nothing of it.
func TestPrepareRefusesOtherTables(t *testing.T) {
	cfg, name := table(t)
	client := dynamodb.NewFromConfig(cfg)
	create := func(name string, sort string, indexes ...string) string {
		in := &dynamodb.CreateTableInput{TableName: &name, BillingMode: types.BillingModePayPerRequest,
			KeySchema: []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}, {AttributeName: &sort, KeyType: types.KeyTypeRange}}}
		attributes := []string{"pk", sort}
		for _, index := range indexes {
			partition, order := index[:1]+"pk", index[:1]+"sk"
			attributes = append(attributes, partition, order)
			in.GlobalSecondaryIndexes = append(in.GlobalSecondaryIndexes, types.GlobalSecondaryIndex{IndexName: &index, Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
				KeySchema: []types.KeySchemaElement{{AttributeName: &partition, KeyType: types.KeyTypeHash}, {AttributeName: &order, KeyType: types.KeyTypeRange}}})
		}
		for _, a := range attributes {
			in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: aws.String(a), AttributeType: types.ScalarAttributeTypeS})
		}
		if _, err := client.CreateTable(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, row := range []struct{ what, table, says string }{
		{"no table", name + "-absent", "describe: table"},
		{"a table with another key", create(name+"-key", "other"), "its key is [pk other], want pk and sk"},
		{"a restore without one index", create(name+"-index", "sk", "list"), "it has no index due"},
	} {
		if _, err := dynamo.Prepare(context.Background(), cfg, row.table); fairlead.KindOf(err) == fairlead.KindUnavailable || err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v, want an error with %q", row.what, err, row.says)
		}
		if d, err := client.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &row.table}); err == nil && d.Table.StreamSpecification != nil {
			t.Errorf("%s: the table was changed", row.what)
		}
	}
}
