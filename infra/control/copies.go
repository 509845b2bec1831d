package control

import (
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsbackup"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/nag"
	"github.com/fairlead/fairlead/infra/internal/policy"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
)

// copies holds the parts of the copies in the spare Region that need suppressions of cdk-nag rules.
type copies struct {
	backupRole          awsiam.CfnRole
	replication         awsiam.CfnRolePolicy
	backups, replicates []policy.Statement
	blobs, archive      string // names of the buckets in the spare Region
}

// replicationRule is the id of the rule by which S3 replicates a bucket. It is a dimension of the rule's metrics.
const replicationRule = "ToTheSpareRegion"

// late is the delay in seconds above which copies of blobs are late. A copy of the table is an hour old or more, and names blobs
// of that time. As long as the blobs are less late, the copied table decides how much a loss of the Region loses.
const late = 1800

// How long a backup of the table is kept. DynamoDB itself keeps 35 days in the Region of the table, so the backup there
// lives only until it is copied. Each backup is whole: an hourly one is kept for two days, because the last one counts, and
// a daily one as long as DynamoDB's own, because a mistake may be found late.
const (
	keptBeforeCopy = 1
	keptHourly     = 2
	keptDaily      = dynamo.RecoveryDays
)

// makeCopies makes what copies the table, the blobs and the archived logs to the spare Region, if ParameterSpare names the
// parts of the spare stack. The table is copied by AWS Backup and not as a global table: a replica would take over each
// mistake within a second, and would double the price of each write.
func (b *builder) makeCopies() {
	part := func(i int) string { // of REGION/VAULT/BLOBS/ARCHIVE. The rest exists without the parameter, too: CloudFormation refuses an index that does not.
		return *awscdk.Fn_Select(jsii.Number(float64(i)), awscdk.Fn_Split(jsii.String("/"), jsii.String(b.parameters[ParameterSpare].value+"/-/-/-"), nil))
	}
	region := part(0)
	remote := func(service, resource string) string {
		return "arn:" + b.partition + ":" + service + ":" + region + ":" + b.account + ":" + resource
	}
	b.copies.blobs, b.copies.archive = part(2), part(3)
	b.backupTable(region, remote("backup", "backup-vault:"+part(1)), remote("kms", "key/"+b.dataKey.id))
	b.replicate(region, remote("kms", "key/"+b.dataKey.id), b.copies.blobs, b.copies.archive)
}

// backupTable makes the plan of backups with copies in the spare vault.
func (b *builder) backupTable(region, spareVault, spareKey string) {
	vault := b.vault("BackupVault")
	b.only(ParameterSpare, vault)
	// From AWS's own policies for this purpose, the statements for DynamoDB, vaults and keys, each for these resources only.
	b.copies.backups = []policy.Statement{
		{Sid: "BackUpTheTable", Actions: []string{"dynamodb:DescribeTable", "dynamodb:ListTagsOfResource", "dynamodb:StartAwsBackupJob"}, Resources: []string{b.served.arn}},
		{Sid: "UseTheVaults", Actions: []string{"backup:DescribeBackupVault", "backup:CopyFromBackupVault", "backup:CopyIntoBackupVault"}, Resources: []string{*vault.AttrBackupVaultArn(), spareVault}},
		{Sid: "CopyBackups", Actions: []string{"backup:CopyFromBackupVault", "backup:TagResource"},
			Resources: []string{b.arn("backup", "recovery-point:*"), "arn:" + b.partition + ":backup:" + region + ":" + b.account + ":recovery-point:*"}},
		{Sid: "EncryptBackups", Actions: []string{"kms:Decrypt", "kms:GenerateDataKey", "kms:DescribeKey"}, Resources: []string{b.dataKey.arn, spareKey}},
		{Sid: "LendTheKeyToAWS", Actions: []string{"kms:CreateGrant"}, Resources: []string{b.dataKey.arn, spareKey},
			Conditions: map[string]map[string]any{"Bool": {"kms:GrantIsForAWSResource": "true"}}},
	}
	account := map[string]map[string]any{"StringEquals": {"aws:SourceAccount": b.account}}
	b.copies.backupRole = awsiam.NewCfnRole(b.stack, jsii.String("BackupRole"), &awsiam.CfnRoleProps{
		Description:              jsii.String(b.name + ": copies backups of the table to the spare Region"),
		AssumeRolePolicyDocument: policy.Trust("backup.amazonaws.com", account),
		Policies:                 []*awsiam.CfnRole_PolicyProperty{{PolicyName: jsii.String("backup"), PolicyDocument: policy.Document(b.copies.backups...)}},
	})
	b.only(ParameterSpare, b.copies.backupRole)
	days := func(n float64) *awsbackup.CfnBackupPlan_LifecycleResourceTypeProperty {
		return &awsbackup.CfnBackupPlan_LifecycleResourceTypeProperty{DeleteAfterDays: jsii.Number(n)}
	}
	rule := func(name, schedule string, kept float64) *awsbackup.CfnBackupPlan_BackupRuleResourceTypeProperty {
		return &awsbackup.CfnBackupPlan_BackupRuleResourceTypeProperty{
			RuleName: jsii.String(name), TargetBackupVault: vault.Ref(), ScheduleExpression: jsii.String(schedule), Lifecycle: days(keptBeforeCopy),
			StartWindowMinutes: jsii.Number(60), CompletionWindowMinutes: jsii.Number(180),
			CopyActions: []*awsbackup.CfnBackupPlan_CopyActionResourceTypeProperty{{DestinationBackupVaultArn: jsii.String(spareVault), Lifecycle: days(kept)}},
		}
	}
	plan := awsbackup.NewCfnBackupPlan(b.stack, jsii.String("BackupPlan"), &awsbackup.CfnBackupPlanProps{
		BackupPlan: &awsbackup.CfnBackupPlan_BackupPlanResourceTypeProperty{BackupPlanName: jsii.String(b.name + "-to-spare-region"),
			BackupPlanRule: []*awsbackup.CfnBackupPlan_BackupRuleResourceTypeProperty{
				rule("hourly", "cron(0 * * * ? *)", keptHourly), rule("daily", "cron(30 3 * * ? *)", keptDaily),
			}},
	})
	b.only(ParameterSpare, plan)
	b.only(ParameterSpare, awsbackup.NewCfnBackupSelection(b.stack, jsii.String("BackupSelection"), &awsbackup.CfnBackupSelectionProps{
		BackupPlanId: plan.Ref(),
		BackupSelection: &awsbackup.CfnBackupSelection_BackupSelectionResourceTypeProperty{SelectionName: jsii.String("table"),
			IamRoleArn: b.copies.backupRole.AttrArn(), Resources: &[]*string{jsii.String(b.served.arn)}},
	}))
}

// replicate makes the replication of the blobs and of the archived logs. A deleted blob is deleted in the spare Region, too,
// where the bucket keeps its version as long as here.
func (b *builder) replicate(region, spareKey, blobs, archive string) {
	bucket := func(name string) string { return "arn:" + b.partition + ":s3:::" + name }
	from, to := []string{*b.blobs.AttrArn(), *b.archive.AttrArn()}, []string{bucket(blobs), bucket(archive)}
	within := func(buckets []string) []string { return []string{buckets[0] + "/*", buckets[1] + "/*"} }
	through := func(region string) map[string]map[string]any {
		return map[string]map[string]any{"StringEquals": {"kms:ViaService": "s3." + region + ".amazonaws.com"}}
	}
	b.copies.replicates = []policy.Statement{
		{Sid: "ReadTheSettings", Actions: []string{"s3:GetReplicationConfiguration", "s3:ListBucket"}, Resources: from},
		{Sid: "ReadVersions", Actions: []string{"s3:GetObjectVersionForReplication", "s3:GetObjectVersionAcl", "s3:GetObjectVersionTagging"}, Resources: within(from)},
		{Sid: "WriteCopies", Actions: []string{"s3:ReplicateObject", "s3:ReplicateDelete", "s3:ReplicateTags"}, Resources: within(to)},
		{Sid: "Decrypt", Actions: []string{"kms:Decrypt"}, Resources: []string{b.dataKey.arn}, Conditions: through(b.region)},
		{Sid: "Encrypt", Actions: []string{"kms:Encrypt", "kms:GenerateDataKey"}, Resources: []string{spareKey}, Conditions: through(region)},
	}
	role := awsiam.NewCfnRole(b.stack, jsii.String("ReplicationRole"), &awsiam.CfnRoleProps{
		Description:              jsii.String(b.name + ": copies blobs and archived logs to the spare Region"),
		AssumeRolePolicyDocument: policy.Trust("s3.amazonaws.com", map[string]map[string]any{"StringEquals": {"aws:SourceAccount": b.account}}),
	})
	b.only(ParameterSpare, role)
	// The policy names the buckets, and the buckets name the role: one resource would depend on itself.
	b.copies.replication = awsiam.NewCfnRolePolicy(b.stack, jsii.String("ReplicationPolicy"), &awsiam.CfnRolePolicyProps{
		PolicyName: jsii.String("replicate"), RoleName: role.Ref(), PolicyDocument: policy.Document(b.copies.replicates...),
	})
	b.only(ParameterSpare, b.copies.replication)
	configuration := func(target string) any {
		return b.when(ParameterSpare, map[string]any{"Role": role.AttrArn(), "Rules": []any{map[string]any{
			"Id": replicationRule, "Status": "Enabled", "Priority": 1, "Filter": map[string]any{"Prefix": ""},
			"DeleteMarkerReplication": map[string]any{"Status": "Enabled"},
			"SourceSelectionCriteria": map[string]any{"SseKmsEncryptedObjects": map[string]any{"Status": "Enabled"}},
			"Destination": map[string]any{"Bucket": target, "EncryptionConfiguration": map[string]any{"ReplicaKmsKeyID": spareKey},
				"Metrics": map[string]any{"Status": "Enabled"}}, // without a promised time, which costs $0.015 for each GB
		}}}, awscdk.Aws_NO_VALUE())
	}
	b.blobs.SetReplicationConfiguration(configuration(to[0]))
	b.archive.SetReplicationConfiguration(configuration(to[1]))
}

// failedCopies is the name of the rule that reports failed backups and copies.
func (b *builder) failedCopies() string { return b.name + "-failed-copies" }

// lateCopies is the name of the rule that reports the alarms of the spare stack.
func (b *builder) lateCopies() string { return b.name + "-late-copies" }

// copyAlarms returns the alarms for blobs and archived logs that S3 does not copy. S3 publishes the failures of a rule in the
// Region of its source. It tries a failed object no second time.
func (b *builder) copyAlarms() (list []alarm) {
	for _, of := range []struct{ id, what, from, to string }{
		{"BlobCopiesFail", "blobs", *b.blobs.Ref(), b.copies.blobs}, {"LogCopiesFail", "archived logs", *b.archive.Ref(), b.copies.archive},
	} {
		list = append(list, alarm{id: of.id, only: ParameterSpare, what: "S3 failed to copy " + of.what + " to the spare Region, and does not try again: fix the cause, then copy what is missing.",
			namespace: "AWS/S3", metric: "OperationsFailedReplication", dimensions: replication(of.from, of.to), statistic: "Sum", above: 0, periods: 1, period: 300})
	}
	return list
}

// replication returns the dimensions of the metrics of S3's replication from one bucket to another.
func replication(from, to string) map[string]string {
	return map[string]string{"SourceBucket": from, "DestinationBucket": to, "RuleId": replicationRule}
}

// lateAlarms returns the alarms of the spare stack for blobs and archived logs that S3 copies too late. S3 publishes how late a
// rule is in the Region of its destination. from has the names of the two buckets of the control plane.
func (b *builder) lateAlarms(from [2]string) (list []alarm) {
	for i, of := range []struct{ what, to string }{{"blobs", *b.blobs.Ref()}, {"archived logs", *b.archive.Ref()}} {
		list = append(list, alarm{id: lateNames[i], what: "S3 copies " + of.what + " of the control plane to this Region more than half an hour late.",
			namespace: "AWS/S3", metric: "ReplicationLatency", dimensions: replication(from[i], of.to), statistic: "Maximum", above: late, periods: 3, period: 300})
	}
	return list
}

// reportFailedCopies makes the rule that sends failed backups and copies to the topic of alarms. Otherwise the first sign of a plan
// that fails would be the missing backup after a loss. The vault's own notifications do not report a failed backup.
func (b *builder) reportFailedCopies() {
	b.only(ParameterSpare, awsevents.NewCfnRule(b.stack, jsii.String("FailedCopies"), &awsevents.CfnRuleProps{
		Name: jsii.String(b.failedCopies()), Description: jsii.String("failed backups of the table, and failed copies of them, go to the topic of alarms"),
		EventBusName: jsii.String("default"), State: jsii.String("ENABLED"), // AWS's own events are on the default bus
		EventPattern: map[string]any{"source": []any{"aws.backup"}, "detail-type": []any{"Backup Job State Change", "Copy Job State Change"},
			"detail": map[string]any{"state": []any{"FAILED", "ABORTED", "EXPIRED", "PARTIAL"}, "resourceArn": []any{b.served.arn}}},
		Targets: []*awsevents.CfnRule_TargetProperty{{Id: jsii.String("alarms"), Arn: b.alarms}},
	}))
}

// reportLateCopies makes the rule that sends the alarms of the spare stack to the topic of alarms. An alarm can act only on a
// topic of its own Region, so the spare stack passes their events to the default bus of this Region.
func (b *builder) reportLateCopies() {
	spare := awscdk.Fn_Select(jsii.Number(0), awscdk.Fn_Split(jsii.String("/"), jsii.String(b.parameters[ParameterSpare].value), nil))
	var names []any
	for _, name := range lateNames {
		names = append(names, b.name+spareSuffix+"-"+name)
	}
	b.only(ParameterSpare, awsevents.NewCfnRule(b.stack, jsii.String("LateCopies"), &awsevents.CfnRuleProps{
		Name: jsii.String(b.lateCopies()), Description: jsii.String("the alarms of the spare stack for late copies go to the topic of alarms"),
		EventBusName: jsii.String("default"), State: jsii.String("ENABLED"),
		EventPattern: map[string]any{"source": []any{"aws.cloudwatch"}, "detail-type": []any{alarmChanges}, "region": []any{spare},
			"detail": map[string]any{"alarmName": names, "state": map[string]any{"value": []any{"ALARM", "OK"}}}},
		Targets: []*awsevents.CfnRule_TargetProperty{{Id: jsii.String("alarms"), Arn: b.alarms}},
	}))
}

// alarmChanges is the type of the event that CloudWatch sends when the state of an alarm changes.
const alarmChanges = "CloudWatch Alarm State Change"

// lateNames are the ids of lateAlarms, in their order.
var lateNames = []string{"BlobCopiesLate", "LogCopiesLate"}

// suppressCopies suppresses the cdk-nag rules that the copies do not follow, each with a reason.
func (b *builder) suppressCopies() error {
	if err := nag.Wildcards(b.stack, b.copies.backupRole, b.copies.backups, map[string]string{
		"CopyBackups": "a backup gets its name when it is made",
	}); err != nil {
		return err
	}
	return nag.Wildcards(b.stack, b.copies.replication, b.copies.replicates, map[string]string{
		"ReadVersions": "the objects of the two buckets",
		"WriteCopies":  "the objects of the two copies",
	})
}

// keyIDs returns the ids of the five keys, separated by commas. They are the same in all Regions.
func (b *builder) keyIDs() string {
	var ids []string
	for _, d := range b.definitions() {
		ids = append(ids, d.of.id)
	}
	return strings.Join(ids, ",")
}
