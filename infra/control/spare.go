package control

import (
	"fmt"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsbackup"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/nag"
	"github.com/fairlead/fairlead/infra/internal/policy"
)

// spareSuffix ends the name of the spare stack. A stage must not end with it.
const spareSuffix = "-spare"

// The parameters of the spare stack. `make deploy` takes their values from the control plane's stack.
const (
	ParameterPrimaryRegion = "PrimaryRegion"
	ParameterPrimaryKeys   = "PrimaryKeys"
	ParameterPrimaryBlobs  = "PrimaryBlobs"
	ParameterPrimaryLogs   = "PrimaryLogs"
)

// keysPattern is the pattern of the ids of the five keys, in the order of builder.definitions.
const keysPattern = `mrk-[0-9a-f]{32}(,mrk-[0-9a-f]{32}){4}`

// NewSpare adds the spare stack to the scope. It is deployed in another Region than the control plane. It keeps what the
// control plane needs to start there after the loss of its Region: a vault with copies of the table's backups, replicas of the
// five keys, and buckets with copies of the blobs and of the archived logs. It serves nothing.
func NewSpare(scope constructs.Construct, props Props) (awscdk.Stack, error) {
	props, err := props.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("spare stack: %w", err)
	}
	name := "fairlead-" + props.Stage + spareSuffix
	env := &awscdk.Environment{}
	if props.Account != "" {
		env.Account = jsii.String(props.Account)
	}
	stack := awscdk.NewStack(scope, jsii.String(name), &awscdk.StackProps{
		StackName: jsii.String(name), Env: env, Description: jsii.String("Copies of Fairlead's control plane for the loss of its Region, stage " + props.Stage),
		TerminationProtection: jsii.Bool(true),
		Tags:                  &map[string]*string{"fairlead": jsii.String(props.Stage)},
		AnalyticsReporting:    jsii.Bool(false),
	})
	b := &builder{props: props, name: name, stack: stack, partition: *awscdk.Aws_PARTITION(), region: *stack.Region(), account: *stack.Account()}
	primary := b.replicas()
	b.buckets()
	b.watchCopies(primary)
	vault := b.vault("Vault")
	restore, err := b.restoreRole("fairlead-" + props.Stage)
	if err != nil {
		return nil, fmt.Errorf("spare stack: %w", err)
	}
	nag.Suppress(b.accessLogs, "AwsSolutions-S1", "it keeps the access logs of the other buckets; logging its own would never end")
	for _, o := range []struct{ id, doc, value string }{
		{"VaultName", "keeps copies of the table's backups", *vault.Ref()},
		{"RestoreRoleArn", "AWS Backup restores the table with this role", *restore.AttrArn()},
		{"BlobsBucket", "copies of the blobs", *b.blobs.Ref()},
		{"LogArchiveBucket", "copies of the archived logs", *b.archive.Ref()},
		{"DataKeyArn", "encrypts the table that is restored here", b.dataKey.arn},
	} {
		awscdk.NewCfnOutput(stack, jsii.String(o.id), &awscdk.CfnOutputProps{Description: jsii.String(o.doc), Value: jsii.String(o.value)})
	}
	return stack, nil
}

// inPrimary adds a parameter with a value of the control plane's stack, and returns a reference to the value.
func (b *builder) inPrimary(id, pattern, says, doc string) string {
	return *awscdk.NewCfnParameter(b.stack, jsii.String(id), &awscdk.CfnParameterProps{
		Type: jsii.String("String"), Description: jsii.String(doc), AllowedPattern: jsii.String("^(" + pattern + ")$"), ConstraintDescription: jsii.String("Use " + says + "."),
	}).ValueAsString()
}

// replicas makes a replica of each key, and returns the Region of the keys. They stay when the stack is deleted: after the loss of the primary Region they are
// the only keys that open what was sealed and that runners accept.
func (b *builder) replicas() (primary string) {
	primary = b.inPrimary(ParameterPrimaryRegion, `[a-z]{2}(-[a-z]+)+-[0-9]`, "a Region, such as eu-central-1", "Region of the control plane")
	ids := b.inPrimary(ParameterPrimaryKeys, keysPattern, "the output KeyIds of the control plane's stack", "Ids of the control plane's five keys, separated by commas")
	for i, d := range b.definitions() {
		id := *awscdk.Fn_Select(jsii.Number(float64(i)), awscdk.Fn_Split(jsii.String(","), jsii.String(ids), jsii.Number(5)))
		k := awskms.NewCfnReplicaKey(b.stack, jsii.String(d.id), &awskms.CfnReplicaKeyProps{
			Description: jsii.String(b.name + ": " + d.purpose), KeyPolicy: d.policy, PendingWindowInDays: jsii.Number(30),
			PrimaryKeyArn: jsii.String("arn:" + b.partition + ":kms:" + primary + ":" + b.account + ":key/" + id),
		})
		keep(k)
		*d.of = key{id: *k.Ref(), arn: *k.AttrArn()}
		b.alias(d)
	}
	return primary
}

// watchCopies makes the alarms for late copies. Their events go to the default bus of the control plane's Region, where its stack
// sends them to its topic of alarms: so one confirmed mail address gets all alarms.
func (b *builder) watchCopies(primary string) {
	const bucket = `[a-z0-9.-]{3,63}`
	var alarms []any
	for _, a := range b.lateAlarms([2]string{
		b.inPrimary(ParameterPrimaryBlobs, bucket, "the output BlobsBucket of the control plane's stack", "Bucket of the control plane's blobs"),
		b.inPrimary(ParameterPrimaryLogs, bucket, "the output LogArchiveBucket of the control plane's stack", "Bucket of the control plane's archived logs"),
	}) {
		alarms = append(alarms, *b.alarm(a, nil).AttrArn())
	}
	bus := "arn:" + b.partition + ":events:" + primary + ":" + b.account + ":event-bus/default"
	role := awsiam.NewCfnRole(b.stack, jsii.String("AlarmsRole"), &awsiam.CfnRoleProps{
		Description: jsii.String(b.name + ": passes alarms to the Region of the control plane"),
		AssumeRolePolicyDocument: policy.Trust("events.amazonaws.com", map[string]map[string]any{
			"StringEquals": {"aws:SourceAccount": b.account}, "ArnEquals": {"aws:SourceArn": b.arn("events", "rule/"+b.lateCopies())}}),
		Policies: []*awsiam.CfnRole_PolicyProperty{{PolicyName: jsii.String("pass"), PolicyDocument: policy.Document(
			policy.Statement{Sid: "PassAlarms", Actions: []string{"events:PutEvents"}, Resources: []string{bus}})}},
	})
	awsevents.NewCfnRule(b.stack, jsii.String("LateCopies"), &awsevents.CfnRuleProps{
		Name: jsii.String(b.lateCopies()), Description: jsii.String("alarms for late copies go to the Region of the control plane"),
		EventBusName: jsii.String("default"), State: jsii.String("ENABLED"),
		EventPattern: map[string]any{"source": []any{"aws.cloudwatch"}, "detail-type": []any{alarmChanges}, "resources": alarms},
		Targets:      []*awsevents.CfnRule_TargetProperty{{Id: jsii.String("control-plane"), Arn: jsii.String(bus), RoleArn: role.AttrArn()}},
	})
}

// restoreRole makes the role with which AWS Backup restores the table here, under a name that begins with the control plane's. It
// exists before it is needed, because IAM itself may not accept changes while the Region of its control plane is lost.
func (b *builder) restoreRole(plane string) (awsiam.CfnRole, error) {
	statements := []policy.Statement{
		{Sid: "RestoreTheTable", Resources: []string{b.arn("dynamodb", "table/"+plane+"-*")}, Actions: []string{
			"dynamodb:RestoreTableFromAwsBackup", "dynamodb:DescribeTable", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:Scan",
			"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:BatchWriteItem"}},
		{Sid: "OpenTheBackup", Resources: []string{b.dataKey.arn},
			Actions: []string{"kms:DescribeKey", "kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"}},
		{Sid: "LendTheKeyToAWS", Actions: []string{"kms:CreateGrant"}, Resources: []string{b.dataKey.arn},
			Conditions: map[string]map[string]any{"Bool": {"kms:GrantIsForAWSResource": "true"}}},
	}
	role := awsiam.NewCfnRole(b.stack, jsii.String("RestoreRole"), &awsiam.CfnRoleProps{
		Description:              jsii.String(b.name + ": restores the table"),
		AssumeRolePolicyDocument: policy.Trust("backup.amazonaws.com", map[string]map[string]any{"StringEquals": {"aws:SourceAccount": b.account}}),
		Policies:                 []*awsiam.CfnRole_PolicyProperty{{PolicyName: jsii.String("restore"), PolicyDocument: policy.Document(statements...)}},
	})
	return role, nag.Wildcards(b.stack, role, statements, map[string]string{
		"RestoreTheTable": "the operator chooses the end of the restored table's name",
	})
}

// vault makes a vault of AWS Backup. A backup in it ends only by its age: the policy refuses every caller who would delete it
// or shorten its time. The name contains a part of the stack's id. So a stack that is deleted and made again does not
// meet the vault that the deleted one left.
func (b *builder) vault(id string) awsbackup.CfnBackupVault {
	unique := awscdk.Fn_Select(jsii.Number(0), awscdk.Fn_Split(jsii.String("-"),
		awscdk.Fn_Select(jsii.Number(2), awscdk.Fn_Split(jsii.String("/"), awscdk.Aws_STACK_ID(), nil)), nil))
	vault := awsbackup.NewCfnBackupVault(b.stack, jsii.String(id), &awsbackup.CfnBackupVaultProps{
		BackupVaultName: jsii.String(b.name + "-" + *unique), EncryptionKeyArn: jsii.String(b.dataKey.arn),
		AccessPolicy: policy.Document(policy.Statement{Sid: "BackupsEndByTheirAge", Deny: true, AnyPrincipal: true,
			Actions: []string{"backup:DeleteBackupVault", "backup:DeleteBackupVaultAccessPolicy", "backup:DeleteRecoveryPoint", "backup:UpdateRecoveryPointLifecycle"}, Resources: []string{"*"}}),
	})
	keep(vault)
	return vault
}
