package terraform

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// What an apply uses of AWS is in the tool's description of the plan: the types that change or are read, those that each apply opens, and
// the programs that a change runs.
func TestUseOfAPlan(t *testing.T) {
	var p shownPlan
	err := json.Unmarshal([]byte(`{"format_version":"1.2",
		"resource_changes":[
			{"address":"aws_sqs_queue.q","type":"aws_sqs_queue","change":{"actions":["create"]}},
			{"address":"aws_vpc.unchanged","type":"aws_vpc","change":{"actions":["no-op"]}},
			{"address":"aws_s3_bucket.moved","previous_address":"aws_s3_bucket.old","type":"aws_s3_bucket","change":{"actions":["no-op"]}},
			{"address":"aws_db_instance.gone","type":"aws_db_instance","change":{"actions":["forget"]}},
			{"address":"data.aws_ami.late","type":"aws_ami","mode":"data","change":{"actions":["read"]}},
			{"address":"data.external.late","type":"external","mode":"data","change":{"actions":["read"]}},
			{"address":"module.a[\"x]\\\".b\"].module.b[0].terraform_data.runs[\"k\"]","type":"terraform_data","change":{"actions":["delete","create"]}},
			{"address":"terraform_data.updated","type":"terraform_data","change":{"actions":["update"]}},
			{"address":"terraform_data.copies","type":"terraform_data","change":{"actions":["create"]}}],
		"configuration":{"root_module":{
			"resources":[
				{"mode":"managed","type":"terraform_data","name":"updated","provisioners":[{"type":"local-exec"}],"expressions":{"input":{"constant_value":1e999999999}}},
				{"mode":"managed","type":"terraform_data","name":"copies","provisioners":[{"type":"file"}]},
				{"mode":"managed","type":"terraform_data","name":"unused","provisioners":[{"type":"local-exec"}]},
				{"mode":"ephemeral","type":"aws_secretsmanager_secret_version","name":"s"},
				{"mode":"ephemeral","type":"random_password","name":"p"}],
			"module_calls":{"a":{"module":{"module_calls":{"b":{"module":{
				"resources":[{"mode":"managed","type":"terraform_data","name":"runs","provisioners":[{"type":"file"},{"type":"local-exec"}]}]}}}}}}}}}`), &p)
	if err != nil {
		t.Fatal(err)
	}
	set, err := changesOf(&p, func(s string) string { return s }, true)
	if err != nil {
		t.Fatal(err)
	}
	u := useOf(&p, set)
	if want := []string{"aws_ami", "aws_secretsmanager_secret_version", "aws_sqs_queue"}; !slices.Equal(u.Kinds, want) {
		t.Errorf("the apply uses %q, want %q", u.Kinds, want)
	}
	want := `data.external.late module.a["x]\".b"].module.b[0].terraform_data.runs["k"]`
	if got := strings.Join(u.Programs, " "); got != want {
		t.Errorf("programs run for %s, want %s: an update runs no provisioner, and file starts nothing", got, want)
	}
}
