package control_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/constructs-go/constructs/v10"

	"github.com/fairlead/fairlead/infra/control"
	"github.com/fairlead/fairlead/infra/internal/infratest"
)

// primaryKeys are the ids of five keys, as the control plane's stack prints them.
func primaryKeys() []string {
	var ids []string
	for i := range 5 {
		ids = append(ids, fmt.Sprintf("mrk-%032x", i+1))
	}
	return ids
}

// keyNames are the logical ids of the keys in the order of the parameters that name them.
func keyNames() []string {
	return []string{"DataKey", "SealKey", "SigningKey", "SpareSigningKey", "TokensKey"}
}

var synthesizedSpare = sync.OnceValues(func() (synthesis, error) {
	dir, err := os.MkdirTemp("", "fairlead-spare-")
	if err != nil {
		return synthesis{}, err
	}
	t, findings, err := infratest.Synth(dir, func(scope constructs.Construct) (awscdk.Stack, error) { return control.NewSpare(scope, props()) })
	return synthesis{t, findings}, err
})

func synthSpare(t *testing.T) synthesis {
	t.Helper()
	s, err := synthesizedSpare()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// spareStack returns the spare stack of a control plane in us-east-1. The tests deploy it to eu-central-1.
func spareStack(t *testing.T) infratest.Stack {
	t.Helper()
	s, err := synthSpare(t).template.Resolve(map[string]string{"BootstrapVersion": given()["BootstrapVersion"],
		control.ParameterPrimaryRegion: "us-east-1", control.ParameterPrimaryKeys: strings.Join(primaryKeys(), ","),
		control.ParameterPrimaryBlobs: "blobs", control.ParameterPrimaryLogs: "logarchive"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSpareTemplateIsAsReviewed(t *testing.T) {
	infratest.Golden(t, synthSpare(t).template, "testdata/spare.template.json")
}

func TestSpareNag(t *testing.T) {
	for _, f := range synthSpare(t).findings {
		t.Error(f)
	}
}

func TestSpareLint(t *testing.T) {
	infratest.Lint(t, synthSpare(t).template, map[string]string{
		"I1022": "the CDK writes Fn::Join for each reference in a text; both functions give the same text",
	})
}

func TestSpareGuard(t *testing.T) {
	infratest.Guard(t, synthSpare(t).template, map[string]string{
		"s3_bucket_default_encryption_kms_check": "the delivery of access logs needs S3's own key",
		"s3_bucket_logging_enabled_check":        "the bucket of access logs does not log itself",
		"s3_event_notifications_enabled_check":   "nothing waits for an object",
		"s3_bucket_object_lock_enabled_check":    "blobs are removed with their install, archives after a year; versions guard them until then",
		"cloudwatch_alarm_action_check":          "an alarm can act only on a topic of its own Region; the rule LateCopies passes its changes to the control plane's",
	})
}

func TestSpareCheckov(t *testing.T) {
	infratest.Checkov(t, synthSpare(t).template, map[string]string{
		"CKV_AWS_18 AccessLogs": "the bucket of access logs does not log itself",
	})
}

// The spare stack holds all that is left after the loss of a Region. So its deletion deletes nothing.
func TestSpareStackKeepsEverything(t *testing.T) {
	s := spareStack(t)
	infratest.BucketsAreSafe(t, s)
	infratest.AllowsAreNarrow(t, s, infratest.Narrow{})
	of := map[string]int{}
	for id, r := range s.Resources {
		of[r.Type]++
		switch r.Type {
		case "AWS::S3::BucketPolicy", "AWS::KMS::Alias", "AWS::IAM::Role", "AWS::CloudWatch::Alarm", "AWS::Events::Rule":
		default:
			if r.DeletionPolicy != "RetainExceptOnCreate" {
				t.Errorf("%s is deleted with its stack, or stays after a failed creation: %q", id, r.DeletionPolicy)
			}
		}
	}
	if of["AWS::KMS::ReplicaKey"] != 5 || of["AWS::S3::Bucket"] != 3 || of["AWS::Backup::BackupVault"] != 1 {
		t.Errorf("the stack has the resources %v, want five replicas, three buckets and a vault", of)
	}
}

// A replica under the wrong name would be used for the wrong purpose after a recovery. Its policy is that of the key in the
// control plane's stack, for the Region of the replica.
func TestReplicasAreOfTheirKeys(t *testing.T) {
	s, first := spareStack(t), stack(t)
	for i, name := range keyNames() {
		p := s.Resources[name].Properties
		if want := "arn:aws:kms:us-east-1:111122223333:key/" + primaryKeys()[i]; p["PrimaryKeyArn"] != want {
			t.Errorf("%s is a replica of %v, want %s", name, p["PrimaryKeyArn"], want)
		}
		if got, want := fmt.Sprint(p["KeyPolicy"]), fmt.Sprint(first.Resources[name].Properties["KeyPolicy"]); got != want {
			t.Errorf("the replica of %s has the policy\n%s, want\n%s", name, got, want)
		}
	}
	if got, err := first.Output("KeyIds"); err != nil || got != strings.ToLower(strings.Join(keyNames(), ",")) {
		t.Errorf("the control plane's stack prints the keys %s, want the order %v; error %v", got, keyNames(), err)
	}
}

// A stack that replaces one of a lost Region makes no key, and uses each replica for the purpose of its key. The parts of the
// stack that use the keys differ in nothing else.
func TestStackUsesExistingKeys(t *testing.T) {
	values := given()
	values[control.ParameterKeys] = strings.Join(primaryKeys(), ",")
	s, err := synth(t).template.Resolve(values)
	if err != nil {
		t.Fatal(err)
	}
	own := stack(t)
	var replaced []string
	for i, name := range keyNames() {
		if _, made := s.Resources[name]; made {
			t.Errorf("the stack makes %s", name)
		}
		if _, made := own.Resources[name]; !made {
			t.Errorf("a stack without existing keys does not make %s", name)
		}
		if got := s.Resources[name+"Alias"].Properties["TargetKeyId"]; got != primaryKeys()[i] {
			t.Errorf("the alias of %s names %v, want %s", name, got, primaryKeys()[i])
		}
		replaced = append(replaced, ":key/"+strings.ToLower(name), ":key/"+primaryKeys()[i])
	}
	with, uses := strings.NewReplacer(replaced...), 0
	for id, r := range own.Resources {
		if r.Type == "AWS::KMS::Key" || r.Type == "AWS::KMS::Alias" || r.Type == "AWS::Lambda::Version" { // a version's description has the parameters
			continue
		}
		before, after := fmt.Sprint(r.Properties), fmt.Sprint(s.Resources[id].Properties)
		if strings.Contains(before, ":key/") {
			uses++
		}
		if with.Replace(before) != after {
			t.Errorf("%s differs in more than the keys:\n%s\n%s", id, before, after)
		}
	}
	if uses < 10 {
		t.Errorf("only %d resources use a key", uses)
	}
	if got, err := s.Output("KeyIds"); err != nil || got != values[control.ParameterKeys] {
		t.Errorf("the stack prints the keys %v; error %v", got, err)
	}
}

// Nothing is copied until the parameter names the spare stack.
func TestCopiesAreOffByDefault(t *testing.T) {
	values := given()
	delete(values, control.ParameterSpare)
	without, err := synth(t).template.Resolve(values)
	if err != nil {
		t.Fatal(err)
	}
	var added []string
	for id := range stack(t).Resources {
		if _, ok := without.Resources[id]; !ok {
			added = append(added, id)
		}
	}
	slices.Sort(added)
	if want := []string{"BackupPlan", "BackupRole", "BackupSelection", "BackupVault", "BlobCopiesFailAlarm", "FailedCopies", "LateCopies", "LogCopiesFailAlarm", "ReplicationPolicy", "ReplicationRole"}; !slices.Equal(added, want) {
		t.Errorf("the parameter adds %q, want %q", added, want)
	}
	for id, target := range map[string]string{"Blobs": "arn:aws:s3:::spare-blobs", "LogArchive": "arn:aws:s3:::spare-archive"} {
		if r := without.Resources[id].Properties["ReplicationConfiguration"]; r != nil {
			t.Errorf("%s is copied without a spare stack: %v", id, r)
		}
		got := fmt.Sprint(stack(t).Resources[id].Properties["ReplicationConfiguration"])
		for _, want := range []string{"Bucket:" + target + " ", "ReplicaKmsKeyID:arn:aws:kms:eu-west-1:111122223333:key/datakey]", "DeleteMarkerReplication:map[Status:Enabled]", "SseKmsEncryptedObjects:map[Status:Enabled]", "Metrics:map[Status:Enabled]"} {
			if !strings.Contains(got, want) {
				t.Errorf("the replication of %s lacks %s: %s", id, want, got)
			}
		}
	}
}

// The table's backup is an hour old at most, and is copied to the spare vault. A daily one is kept as long as the deleted
// blobs to which it refers.
func TestBackupsGoToTheSpareVault(t *testing.T) {
	s := stack(t)
	plan := s.Resources["BackupPlan"].Properties["BackupPlan"].(map[string]any)
	kept := map[string]string{}
	for _, r := range plan["BackupPlanRule"].([]any) {
		rule := r.(map[string]any)
		if rule["TargetBackupVault"] != "fairlead-test-0" {
			t.Errorf("the rule %v backs up to %v", rule["RuleName"], rule["TargetBackupVault"])
		}
		kept[fmt.Sprint(rule["ScheduleExpression"])] = fmt.Sprint(rule["CopyActions"])
	}
	copied := func(days int) string {
		return fmt.Sprintf("[map[DestinationBackupVaultArn:arn:aws:backup:eu-west-1:111122223333:backup-vault:fairlead-test-spare-0 Lifecycle:map[DeleteAfterDays:%d]]]", days)
	}
	if len(kept) != 2 || kept["cron(0 * * * ? *)"] != copied(2) || kept["cron(30 3 * * ? *)"] != copied(35) {
		t.Errorf("the copies are %q", kept)
	}
	if got := fmt.Sprint(s.Resources["BackupSelection"].Properties["BackupSelection"].(map[string]any)["Resources"]); got != "["+s.ARN("Table")+"]" {
		t.Errorf("the plan backs up %s, want only the table", got)
	}
	values := given()
	values[control.ParameterTable] = "restored/stream/2026-11-25T19:30:00.000"
	restored, err := synth(t).template.Resolve(values)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(restored.Resources["BackupSelection"].Properties["BackupSelection"].(map[string]any)["Resources"]); !strings.HasSuffix(got, ":table/restored]") {
		t.Errorf("after a restore the plan backs up %s, want the table that is served", got)
	}
}

// A backup or a copy that fails reaches the people who get alarms. One of another table does not.
func TestFailedCopiesAreReported(t *testing.T) {
	s := stack(t)
	rule := s.Resources["FailedCopies"].Properties
	detail := rule["EventPattern"].(map[string]any)["detail"].(map[string]any)
	if got, want := fmt.Sprint(detail["resourceArn"]), "["+s.ARN("Table")+"]"; got != want {
		t.Errorf("the rule reports the table %s, want %s", got, want)
	}
	if got := fmt.Sprint(detail["state"]); !strings.Contains(got, "FAILED") || !strings.Contains(got, "EXPIRED") {
		t.Errorf("the rule reports the states %s", got)
	}
	topic := rule["Targets"].([]any)[0].(map[string]any)["Arn"]
	if want := s.Resources["AlarmsByMail"].Properties["TopicArn"]; topic != want || rule["EventBusName"] != "default" {
		t.Errorf("the rule sends events of the bus %v to %v, want those of AWS to %v", rule["EventBusName"], topic, want)
	}
	accepted := ""
	for _, p := range infratest.Statements(s.Resources["AlarmsPolicy"].Properties["PolicyDocument"]) {
		if strings.Contains(fmt.Sprint(p["Principal"]), "events.amazonaws.com") && p["Effect"] == "Allow" {
			accepted = fmt.Sprint(p["Condition"])
		}
	}
	const arn = "arn:aws:events:eu-central-1:111122223333:rule/"
	if want := fmt.Sprintf("map[ArnEquals:map[aws:SourceArn:[%s%v %s%v]]]", arn, rule["Name"], arn, s.Resources["LateCopies"].Properties["Name"]); accepted != want {
		t.Errorf("the topic accepts events under the condition %q, want %s", accepted, want)
	}
}

// Copies of blobs and logs that fail reach the people who get alarms, and so do late ones, although CloudWatch has the metric of
// their delay in the spare Region only: the spare stack passes the change of the alarm to the default bus of the control plane's Region,
// where a rule sends it to the topic.
func TestLateCopiesAreReported(t *testing.T) {
	s, spare := stack(t), spareStack(t) // both of stage test; here the spare stack is in eu-central-1, of a control plane in us-east-1
	topic := s.Resources["AlarmsByMail"].Properties["TopicArn"]
	dimensions := func(r infratest.Resource) string {
		got := map[string]string{}
		for _, d := range r.Properties["Dimensions"].([]any) {
			got[fmt.Sprint(d.(map[string]any)["Name"])] = fmt.Sprint(d.(map[string]any)["Value"])
		}
		return fmt.Sprint(got)
	}
	var late []any
	var names []any
	for _, of := range []struct{ name, bucket, source, copies string }{{"Blob", "Blobs", "blobs", "spare-blobs"}, {"Log", "LogArchive", "logarchive", "spare-archive"}} {
		fails := s.Resources[of.name+"CopiesFailAlarm"]
		if got := fmt.Sprint(fails.Properties["AlarmActions"]); got != fmt.Sprint([]any{topic}) {
			t.Errorf("the alarm for failed copies of %s acts on %s, want the topic %v", of.bucket, got, topic)
		}
		rules := s.Resources[of.bucket].Properties["ReplicationConfiguration"].(map[string]any)["Rules"].([]any)
		id := rules[0].(map[string]any)["Id"]
		if got, want := dimensions(fails), fmt.Sprint(map[string]string{"SourceBucket": of.source, "DestinationBucket": of.copies, "RuleId": fmt.Sprint(id)}); got != want {
			t.Errorf("the alarm for failed copies of %s has the dimensions %s, want %s", of.bucket, got, want)
		}
		alarm := spare.Resources[of.name+"CopiesLateAlarm"]
		if got, want := dimensions(alarm), fmt.Sprint(map[string]string{"SourceBucket": of.source, "DestinationBucket": strings.ToLower(of.bucket), "RuleId": fmt.Sprint(id)}); got != want {
			t.Errorf("the alarm for late copies of %s has the dimensions %s, want %s", of.bucket, got, want)
		}
		late, names = append(late, spare.ARN(of.name+"CopiesLateAlarm")), append(names, alarm.Properties["AlarmName"])
	}

	passes, reports := spare.Resources["LateCopies"].Properties, s.Resources["LateCopies"].Properties
	pattern := passes["EventPattern"].(map[string]any)
	if fmt.Sprint(pattern["resources"]) != fmt.Sprint(late) || fmt.Sprint(pattern["source"]) != "[aws.cloudwatch]" || passes["EventBusName"] != "default" {
		t.Errorf("the spare stack passes events of the pattern %v, want those of %v", pattern, late)
	}
	const bus = "arn:aws:events:us-east-1:111122223333:event-bus/default"
	target := passes["Targets"].([]any)[0].(map[string]any)
	if target["Arn"] != bus || target["RoleArn"] != spare.ARN("AlarmsRole") {
		t.Errorf("the spare stack passes events to %v, want %s", target, bus)
	}
	got := reports["EventPattern"].(map[string]any)
	if want := fmt.Sprint(map[string]any{"source": pattern["source"], "detail-type": pattern["detail-type"], "region": []any{"eu-west-1"},
		"detail": map[string]any{"alarmName": names, "state": map[string]any{"value": []any{"ALARM", "OK"}}}}); fmt.Sprint(got) != want {
		t.Errorf("the stack reports events of the pattern\n%v, want\n%s", got, want)
	}
	if to := reports["Targets"].([]any)[0].(map[string]any)["Arn"]; to != topic || reports["EventBusName"] != "default" {
		t.Errorf("the rule sends events of the bus %v to %v, want those of AWS to %v", reports["EventBusName"], to, topic)
	}

	var questions []infratest.Question
	rows := []struct {
		action, resource string
		allowed          bool
	}{{"events:PutEvents", bus, true}, {"events:PutEvents", "arn:aws:events:eu-central-1:111122223333:event-bus/fairlead-test", false}, {"events:PutRule", "arn:aws:events:us-east-1:111122223333:rule/any", false}}
	for _, r := range rows {
		questions = append(questions, infratest.Question{Principal: spare.ARN("AlarmsRole"), Action: r.action, Resource: r.resource, Account: infratest.Account, Identity: spare.Policies("AlarmsRole")})
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if r := rows[i]; allowed != r.allowed {
			t.Errorf("the role that passes alarms may %s on %s: %t, want %t", r.action, r.resource, allowed, r.allowed)
		}
	}
	if trust := fmt.Sprint(spare.Resources["AlarmsRole"].Properties["AssumeRolePolicyDocument"]); !strings.Contains(trust, "aws:SourceArn:arn:aws:events:eu-central-1:111122223333:rule/"+fmt.Sprint(passes["Name"])) {
		t.Errorf("the role that passes alarms trusts more than the rule: %s", trust)
	}
}

// The two roles can copy, and nothing else: they can read no other bucket or table, write into no other Region's, and delete
// no backup. No caller can delete a backup.
func TestCopiesReachOnlyTheSpareStack(t *testing.T) {
	s, spare := stack(t), spareStack(t)
	key := s.ARN("DataKey")
	copied := strings.Replace(key, "eu-central-1", "eu-west-1", 1)
	const vault, elsewhere = "arn:aws:backup:eu-west-1:111122223333:backup-vault:fairlead-test-spare-0", "arn:aws:backup:eu-west-1:111122223333:backup-vault:other"
	s3 := func(region string) map[string]any {
		return map[string]any{"kms:ViaService": "s3." + region + ".amazonaws.com"}
	}
	rows := []struct {
		role, action, resource string
		context                map[string]any
		allowed                bool
	}{
		{"ReplicationRole", "s3:GetObjectVersionForReplication", s.ARN("Blobs") + "/app/x", nil, true},
		{"ReplicationRole", "s3:GetObjectVersionForReplication", s.ARN("LogArchive") + "/x", nil, true},
		{"ReplicationRole", "s3:GetReplicationConfiguration", s.ARN("Blobs"), nil, true},
		{"ReplicationRole", "s3:ReplicateObject", "arn:aws:s3:::spare-blobs/app/x", nil, true},
		{"ReplicationRole", "s3:ReplicateDelete", "arn:aws:s3:::spare-archive/x", nil, true},
		{"ReplicationRole", "kms:Decrypt", key, s3("eu-central-1"), true},
		{"ReplicationRole", "kms:Encrypt", copied, s3("eu-west-1"), true},
		{"ReplicationRole", "kms:Decrypt", s.ARN("SealKey"), s3("eu-central-1"), false},
		{"ReplicationRole", "s3:GetObjectVersionForReplication", s.ARN("Templates") + "/x", nil, false},
		{"ReplicationRole", "s3:GetObject", s.ARN("Blobs") + "/app/x", nil, false},
		{"ReplicationRole", "s3:ReplicateObject", "arn:aws:s3:::another-bucket/x", nil, false},
		{"ReplicationRole", "s3:ReplicateObject", s.ARN("Blobs") + "/app/x", nil, false},
		{"ReplicationRole", "s3:DeleteObjectVersion", "arn:aws:s3:::spare-blobs/app/x", nil, false},
		{"BackupRole", "dynamodb:StartAwsBackupJob", s.ARN("Table"), nil, true},
		{"BackupRole", "backup:CopyIntoBackupVault", vault, nil, true},
		{"BackupRole", "kms:GenerateDataKey", copied, nil, true},
		{"BackupRole", "kms:CreateGrant", key, map[string]any{"kms:GrantIsForAWSResource": "true"}, true},
		{"BackupRole", "kms:CreateGrant", key, map[string]any{"kms:GrantIsForAWSResource": "false"}, false},
		{"BackupRole", "dynamodb:StartAwsBackupJob", s.ARN("LogTable"), nil, false},
		{"BackupRole", "dynamodb:GetItem", s.ARN("Table"), nil, false},
		{"BackupRole", "dynamodb:DeleteTable", s.ARN("Table"), nil, false},
		{"BackupRole", "backup:CopyIntoBackupVault", elsewhere, nil, false},
		{"BackupRole", "backup:DeleteRecoveryPoint", "arn:aws:backup:eu-west-1:111122223333:recovery-point:x", nil, false},
		{"BackupRole", "kms:Decrypt", s.ARN("SealKey"), nil, false},
	}
	var questions []infratest.Question
	for _, r := range rows {
		q := infratest.Question{Principal: s.ARN(r.role), Action: r.action, Resource: r.resource, Account: infratest.Account, Context: r.context, Identity: s.Policies(r.role)}
		for _, id := range []string{"DataKey", "SealKey"} {
			if strings.HasSuffix(r.resource, strings.TrimPrefix(s.ARN(id), "arn:aws:kms:eu-central-1")) {
				q.ResourceP = s.Resources[id].Properties["KeyPolicy"].(map[string]any)
			}
		}
		questions = append(questions, q)
	}
	restored := "arn:aws:dynamodb:eu-central-1:111122223333:table/fairlead-test-"
	for _, r := range []struct {
		action, resource string
		allowed          bool
	}{
		{"dynamodb:RestoreTableFromAwsBackup", restored + "restored", true},
		{"dynamodb:BatchWriteItem", restored + "restored", true},
		{"kms:Decrypt", spare.ARN("DataKey"), true},
		{"dynamodb:RestoreTableFromAwsBackup", "arn:aws:dynamodb:eu-central-1:111122223333:table/other", false},
		{"dynamodb:DeleteTable", restored + "restored", false},
		{"kms:Decrypt", spare.ARN("SealKey"), false},
	} {
		rows = append(rows, struct {
			role, action, resource string
			context                map[string]any
			allowed                bool
		}{"RestoreRole", r.action, r.resource, nil, r.allowed})
		q := infratest.Question{Principal: spare.ARN("RestoreRole"), Action: r.action, Resource: r.resource, Account: infratest.Account, Identity: spare.Policies("RestoreRole")}
		for _, id := range []string{"DataKey", "SealKey"} {
			if r.resource == spare.ARN(id) {
				q.ResourceP = spare.Resources[id].Properties["KeyPolicy"].(map[string]any)
			}
		}
		questions = append(questions, q)
	}
	admin := map[string]any{"Version": "2012-10-17", "Statement": []any{map[string]any{"Effect": "Allow", "Action": "*", "Resource": "*"}}}
	for _, action := range []string{"DeleteRecoveryPoint", "UpdateRecoveryPointLifecycle", "DeleteBackupVault", "DeleteBackupVaultAccessPolicy", "StartRestoreJob"} {
		for _, p := range []any{s.Resources["BackupVault"].Properties["AccessPolicy"], spare.Resources["Vault"].Properties["AccessPolicy"]} {
			rows = append(rows, struct {
				role, action, resource string
				context                map[string]any
				allowed                bool
			}{"an administrator", "backup:" + action, vault, nil, action == "StartRestoreJob"})
			questions = append(questions, infratest.Question{Principal: "arn:aws:iam::111122223333:role/admin", Action: "backup:" + action, Resource: vault, Account: infratest.Account,
				Identity: []map[string]any{admin}, ResourceP: p.(map[string]any)})
		}
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if r := rows[i]; allowed != r.allowed {
			t.Errorf("%s may %s on %s with %v: %t, want %t", r.role, r.action, r.resource, r.context, allowed, r.allowed)
		}
	}
}

func TestParametersOfCopiesAreChecked(t *testing.T) {
	keys := strings.Join(primaryKeys(), ",")
	for _, row := range []struct {
		template  infratest.Template
		parameter string
		good, bad []string
	}{
		{synth(t).template, control.ParameterKeys, []string{"none", keys}, []string{"", keys[37:], keys + ",", strings.ReplaceAll(keys, ",", " ")}},
		{synth(t).template, control.ParameterSpare, []string{"none", "eu-west-1/fairlead-prod-spare-0a1b2c3d/bucket-a/bucket-b", "us-gov-west-1/v/abc/abd"}, []string{"", "eu-west-1", "eu-west-1/vault/bucket", "eu-west-1/vault/b_a/bucket", "Europe/v/abc/abd"}},
		{synthSpare(t).template, control.ParameterPrimaryRegion, []string{"eu-central-1", "ap-southeast-2"}, []string{"", "none", "eu-central-1a"}},
		{synthSpare(t).template, control.ParameterPrimaryBlobs, []string{"fairlead-prod-blobs-0a1b2c", "a.b"}, []string{"", "ab", "arn:aws:s3:::blobs", "Blobs"}},
		{synthSpare(t).template, control.ParameterPrimaryLogs, []string{"fairlead-prod-logarchive-0a1b2c"}, []string{"", "ab", "a_b"}},
		{synthSpare(t).template, control.ParameterPrimaryKeys, []string{keys}, []string{"", keys[37:], keys + ",mrk-" + strings.Repeat("0", 32), strings.ToUpper(keys)}},
	} {
		for i, accepted := range infratest.Accepts(t, row.template, row.parameter, slices.Concat(row.good, row.bad)) {
			if want := i < len(row.good); accepted != want {
				t.Errorf("%s accepts %q: %t, want %t", row.parameter, slices.Concat(row.good, row.bad)[i], accepted, want)
			}
		}
	}
}

// removeSpare removes the folder of the synthesis after the tests.
func removeSpare() {
	if s, err := synthesizedSpare(); err == nil {
		_ = os.RemoveAll(filepath.Dir(s.template.File)) // a leftover folder is harmless
	}
}
