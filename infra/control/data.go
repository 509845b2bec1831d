package control

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/policy"
	"github.com/fairlead/fairlead/pkg/cancelmark"
	logtable "github.com/fairlead/fairlead/pkg/joblog/dynamo"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
)

// key is a KMS key of the stack. A replica in another Region has the same id, and an ARN of its own.
type key struct{ id, arn string }

// definition is how a key is made.
type definition struct {
	of          *key
	id, purpose string
	spec, usage string // "": a symmetric key that encrypts
	policy      map[string]any
}

// definitions returns the five keys in the order of ParameterKeys. Each key is for other users. For
// example, a role that may read a bucket must not be able to sign a job. KMS keeps a policy for
// each replica, and these policies name the Region of the stack.
func (b *builder) definitions() []definition {
	account := "arn:" + b.partition + ":iam::" + b.account + ":root"
	owner := policy.Statement{Sid: "TheAccountDecides", Principal: policy.AWS(account), Actions: []string{"kms:*"}, Resources: []string{"*"}}
	// A principal that may use the table or a bucket may also use the key of the table
	// or bucket, but only through DynamoDB or S3. Keys that AWS manages have the same
	// rule.
	through := map[string]any{
		"kms:CallerAccount": b.account,
		"kms:ViaService":    []string{"dynamodb." + b.region + ".amazonaws.com", "s3." + b.region + ".amazonaws.com"},
	}
	data := policy.Statement{Sid: "ThroughTheTableAndTheBuckets", Principal: policy.AWS("*"),
		Actions:    []string{"kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey"},
		Resources:  []string{"*"},
		Conditions: map[string]map[string]any{"StringEquals": through}}
	grant := policy.Statement{Sid: "TheTableKeepsAGrant", Principal: policy.AWS("*"), Actions: []string{"kms:CreateGrant"}, Resources: []string{"*"},
		Conditions: map[string]map[string]any{"StringEquals": through, "Bool": {"kms:GrantIsForAWSResource": "true"}}}
	return []definition{
		{of: &b.dataKey, id: "DataKey", purpose: "what the table and the buckets hold", policy: policy.Document(owner, data, grant)},
		{of: &b.sealKey, id: "SealKey", purpose: "sensitive values, sealed before they are stored", policy: policy.Document(owner)},
		{of: &b.signingKey, id: "SigningKey", purpose: "signs job specs", spec: "ECC_NIST_EDWARDS25519", usage: "SIGN_VERIFY", policy: policy.Document(owner)},
		// Runners accept no key that they did not pin when they were installed. If there was one
		// key and it was deleted, every customer would have to install again.
		{of: &b.spareKey, id: "SpareSigningKey", purpose: "signs job specs if the signing key is lost", spec: "ECC_NIST_EDWARDS25519", usage: "SIGN_VERIFY", policy: policy.Document(owner)},
		{of: &b.tokensKey, id: "TokensKey", purpose: "the key of sessions' and jobs' tokens is derived from it", spec: "HMAC_256", usage: "GENERATE_VERIFY_MAC", policy: policy.Document(owner)},
	}
}

// keys makes the five keys. A stack that replaces one of a lost Region makes none: it uses the replicas that ParameterKeys
// names, because only they open what was sealed, and runners accept no other signature.
func (b *builder) keys() {
	existing := b.parameters[ParameterKeys].value
	makes := awscdk.NewCfnCondition(b.stack, jsii.String("MakesKeys"), &awscdk.CfnConditionProps{Expression: awscdk.Fn_ConditionNot(b.parameters[ParameterKeys].isSet)})
	of := func(own, replica any) string {
		return *awscdk.Fn_ConditionIf(makes.LogicalId(), own, replica).ToString()
	}
	for i, d := range b.definitions() {
		props := &awskms.CfnKeyProps{Description: jsii.String(b.name + ": " + d.purpose), KeyPolicy: d.policy, PendingWindowInDays: jsii.Number(30),
			// A key cannot become multi-Region later. Without a replica in another Region, the loss of
			// this Region would be the loss of all sealed values and of the key that runners pin.
			MultiRegion: jsii.Bool(true)}
		if d.spec == "" {
			props.EnableKeyRotation = jsii.Bool(true)
		} else { // KMS rotates only symmetric keys
			props.KeySpec, props.KeyUsage = jsii.String(d.spec), jsii.String(d.usage)
		}
		k := awskms.NewCfnKey(b.stack, jsii.String(d.id), props)
		keep(k)
		k.CfnOptions().SetCondition(makes)
		// The four commas are there without the parameter, too: CloudFormation refuses an index that does not exist.
		id := *awscdk.Fn_Select(jsii.Number(float64(i)), awscdk.Fn_Split(jsii.String(","), jsii.String(existing+",-,-,-,-"), nil))
		*d.of = key{id: of(k.Ref(), id), arn: of(k.AttrArn(), b.arn("kms", "key/"+id))}
		b.alias(d)
	}
	first, spare := b.signingKey.arn, b.spareKey.arn
	own, idle := b.when(ParameterSigns, spare, first), b.when(ParameterSigns, first, spare)
	b.signs, b.idle = *b.when(ParameterLaterKey, b.parameters[ParameterLaterKey].value, own).ToString(), *idle.ToString()
}

// alias names a key for people. The code uses no alias.
func (b *builder) alias(d definition) {
	awskms.NewCfnAlias(b.stack, jsii.String(d.id+"Alias"), &awskms.CfnAliasProps{
		AliasName: jsii.String("alias/" + b.name + "/" + d.id), TargetKeyId: jsii.String(d.of.id),
	})
}

// makeTable makes the table with the schema of pkg/store/dynamo.
func (b *builder) makeTable() {
	index := func(name, partition, sort string) *awsdynamodb.CfnTable_GlobalSecondaryIndexProperty {
		return &awsdynamodb.CfnTable_GlobalSecondaryIndexProperty{
			IndexName: jsii.String(name), KeySchema: keySchema(partition, sort),
			Projection: &awsdynamodb.CfnTable_ProjectionProperty{ProjectionType: jsii.String("KEYS_ONLY")},
		}
	}
	b.table = b.keptTable("Table", awsdynamodb.CfnTableProps{
		GlobalSecondaryIndexes: []*awsdynamodb.CfnTable_GlobalSecondaryIndexProperty{
			index(dynamo.IndexList, dynamo.AttrListPartition, dynamo.AttrListSort),
			index(dynamo.IndexDue, dynamo.AttrDuePartition, dynamo.AttrDueSort),
		},
		TimeToLiveSpecification: &awsdynamodb.CfnTable_TimeToLiveSpecificationProperty{
			AttributeName: jsii.String(dynamo.AttrExpires), Enabled: jsii.Bool(true),
		},
		// Without the old image, dispatch would announce each renewal of a lease as a
		// change of state.
		StreamSpecification: &awsdynamodb.CfnTable_StreamSpecificationProperty{StreamViewType: jsii.String("NEW_AND_OLD_IMAGES")},
	}, dynamo.AttrPartition, dynamo.AttrSort, dynamo.AttrListPartition, dynamo.AttrListSort, dynamo.AttrDuePartition, dynamo.AttrDueSort)
	// AWS restores a table under another name. The stack's own table stays: a backup of it
	// may be needed again.
	restored := b.parameters[ParameterTable].value // NAME/stream/LABEL
	name := awscdk.Fn_Select(jsii.Number(0), awscdk.Fn_Split(jsii.String("/"), jsii.String(restored), nil))
	b.served = servedTable{
		name:   *b.when(ParameterTable, name, b.table.Ref()).ToString(),
		arn:    *b.when(ParameterTable, b.arn("dynamodb", "table/"+*name), b.table.AttrArn()).ToString(),
		stream: *b.when(ParameterTable, b.arn("dynamodb", "table/"+restored), b.table.AttrStreamArn()).ToString(),
	}
}

// servedTable is the table that the functions serve: the stack's own, or a restored one.
type servedTable struct{ name, arn, stream string }

func keySchema(partition, sort string) []*awsdynamodb.CfnTable_KeySchemaProperty {
	return []*awsdynamodb.CfnTable_KeySchemaProperty{
		{AttributeName: jsii.String(partition), KeyType: jsii.String("HASH")},
		{AttributeName: jsii.String(sort), KeyType: jsii.String("RANGE")},
	}
}

// keptTable makes a table that is encrypted, has point-in-time recovery, and outlives
// the stack. The first two attributes are its key, the others are the keys of its
// indexes. DynamoDB does not delete a protected table, so the rollback of a failed
// first creation would end as ROLLBACK_FAILED. So CloudFormation retains a protected
// table in this case too.
func (b *builder) keptTable(id string, props awsdynamodb.CfnTableProps, attributes ...string) awsdynamodb.CfnTable {
	var definitions []*awsdynamodb.CfnTable_AttributeDefinitionProperty
	for _, name := range attributes {
		definitions = append(definitions, &awsdynamodb.CfnTable_AttributeDefinitionProperty{AttributeName: jsii.String(name), AttributeType: jsii.String("S")})
	}
	props.BillingMode, props.KeySchema, props.AttributeDefinitions = jsii.String("PAY_PER_REQUEST"), keySchema(attributes[0], attributes[1]), definitions
	props.PointInTimeRecoverySpecification = &awsdynamodb.CfnTable_PointInTimeRecoverySpecificationProperty{
		PointInTimeRecoveryEnabled: jsii.Bool(true), RecoveryPeriodInDays: jsii.Number(dynamo.RecoveryDays),
	}
	props.SseSpecification = &awsdynamodb.CfnTable_SSESpecificationProperty{
		SseEnabled: jsii.Bool(true), SseType: jsii.String("KMS"), KmsMasterKeyId: jsii.String(b.dataKey.arn),
	}
	props.DeletionProtectionEnabled = jsii.Bool(!b.props.Deletable)
	table := awsdynamodb.NewCfnTable(b.stack, jsii.String(id), &props)
	if b.props.Deletable {
		keep(table)
	} else {
		table.ApplyRemovalPolicy(awscdk.RemovalPolicy_RETAIN, nil)
	}
	return table
}

// makeLogTable makes the table with the schema of pkg/joblog/dynamo. The log has
// its own table for two reasons: its many writes need no stream, and they must not
// delay the writes of the main table.
func (b *builder) makeLogTable() {
	// The table's content is soon in the archive, except for the sizes and checksums. The
	// pieces of logs expire, because a delete costs as much as a write.
	b.logTable = b.keptTable("LogTable", awsdynamodb.CfnTableProps{
		TimeToLiveSpecification: &awsdynamodb.CfnTable_TimeToLiveSpecificationProperty{
			AttributeName: jsii.String(logtable.AttrExpires), Enabled: jsii.Bool(true),
		},
	}, "pk", "sk")
}

// makeCancels makes the table of cancel markers. Runners' sessions read it, so it is apart from
// the control plane's table. It holds nothing that anybody needs after an hour: it has no backup
// and is deleted with the stack. AWS's own key encrypts it: with the data key, each step would
// need a permission on the key that also encrypts the tables and the buckets.
func (b *builder) makeCancels() {
	b.cancels = awsdynamodb.NewCfnTable(b.stack, jsii.String("Cancels"), &awsdynamodb.CfnTableProps{
		BillingMode:          jsii.String("PAY_PER_REQUEST"),
		KeySchema:            []*awsdynamodb.CfnTable_KeySchemaProperty{{AttributeName: jsii.String(cancelmark.AttrAttempt), KeyType: jsii.String("HASH")}},
		AttributeDefinitions: []*awsdynamodb.CfnTable_AttributeDefinitionProperty{{AttributeName: jsii.String(cancelmark.AttrAttempt), AttributeType: jsii.String("S")}},
		TimeToLiveSpecification: &awsdynamodb.CfnTable_TimeToLiveSpecificationProperty{
			AttributeName: jsii.String(cancelmark.AttrExpires), Enabled: jsii.Bool(true),
		},
	})
}

// keep retains a resource when the stack is deleted or the resource is removed. If
// the first creation of the stack fails, the rollback still removes the resource.
// The removal loses no data: S3 does not remove a bucket that has objects, and KMS
// deletes a key only after 30 days.
func keep(r awscdk.CfnResource) {
	r.ApplyRemovalPolicy(awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE, nil) // CloudFormation's RetainExceptOnCreate
}

// buckets makes the buckets. They outlive the stack.
func (b *builder) buckets() {
	days := func(n int) *float64 { return jsii.Number(float64(n)) }
	rule := func(id string) awss3.CfnBucket_RuleProperty {
		return awss3.CfnBucket_RuleProperty{Id: jsii.String(id), Status: jsii.String("Enabled"),
			AbortIncompleteMultipartUpload: &awss3.CfnBucket_AbortIncompleteMultipartUploadProperty{DaysAfterInitiation: days(2)}}
	}

	access := rule("Expire")
	access.ExpirationInDays = days(90)
	// Each bucket is versioned. Without this rule, an expired object would become a
	// noncurrent version, which costs money as long as the bucket exists.
	access.NoncurrentVersionExpiration = &awss3.CfnBucket_NoncurrentVersionExpirationProperty{NoncurrentDays: days(1)}
	b.accessLogs = b.bucket("AccessLogs", "", access, policy.Statement{
		Sid: "ServerAccessLogs", Principal: policy.Service("logging.s3.amazonaws.com"), Actions: []string{"s3:PutObject"},
		Conditions: map[string]map[string]any{"StringEquals": {"aws:SourceAccount": b.account}},
	})

	// A blob never changes, so a noncurrent version is a deleted blob. The noncurrent
	// version must outlive the table's recovery period, because a restored table
	// refers to blobs that existed at the restored time.
	blobs := rule("KeepDeletedBeyondTheTablesRecovery")
	blobs.NoncurrentVersionExpiration = &awss3.CfnBucket_NoncurrentVersionExpirationProperty{NoncurrentDays: days(dynamo.RecoveryDays + 1)}
	blobs.ExpiredObjectDeleteMarker = jsii.Bool(true)
	// TestLargeBodiesPassThroughTheFunctions compares the prefix with the keys of parts. A staged part serves requests of a running job, and the sweep deletes it. This rule removes the parts that
	// remain, and their deleted versions, which no restored table refers to. Where two rules apply, S3 takes the
	// shorter time. A job of more than a day sends a missing part again.
	staged := rule("ExpireStagedParts")
	staged.Prefix, staged.ExpirationInDays = jsii.String("staged/"), days(1)
	staged.NoncurrentVersionExpiration = &awss3.CfnBucket_NoncurrentVersionExpirationProperty{NoncurrentDays: days(1)}
	b.blobs = b.bucket("Blobs", b.dataKey.arn, blobs)
	b.blobs.SetLifecycleConfiguration(&awss3.CfnBucket_LifecycleConfigurationProperty{Rules: []*awss3.CfnBucket_RuleProperty{&blobs, &staged}})

	archive := rule("Expire")
	archive.ExpirationInDays = days(b.props.ArchiveDays)
	archive.NoncurrentVersionExpiration = &awss3.CfnBucket_NoncurrentVersionExpirationProperty{NoncurrentDays: days(30)}
	if b.props.ArchiveDays > 60 { // S3 bills at least 30 days of the storage class IA, so IA is cheaper only for objects that stay for 30 more days
		archive.Transitions = []*awss3.CfnBucket_TransitionProperty{{StorageClass: jsii.String("STANDARD_IA"), TransitionInDays: days(30)}}
	}
	b.archive = b.bucket("LogArchive", b.dataKey.arn, archive)
}

// bucket makes a private, versioned, encrypted bucket that refuses requests without
// TLS. key is an ARN; if it is "", S3's own key encrypts the bucket. The first bucket that the stack makes
// stores the access logs of the other buckets.
func (b *builder) bucket(id, key string, rule awss3.CfnBucket_RuleProperty, more ...policy.Statement) awss3.CfnBucket {
	props := &awss3.CfnBucketProps{
		PublicAccessBlockConfiguration: &awss3.CfnBucket_PublicAccessBlockConfigurationProperty{
			BlockPublicAcls: jsii.Bool(true), BlockPublicPolicy: jsii.Bool(true), IgnorePublicAcls: jsii.Bool(true), RestrictPublicBuckets: jsii.Bool(true),
		},
		OwnershipControls: &awss3.CfnBucket_OwnershipControlsProperty{
			Rules: []*awss3.CfnBucket_OwnershipControlsRuleProperty{{ObjectOwnership: jsii.String("BucketOwnerEnforced")}},
		},
		VersioningConfiguration: &awss3.CfnBucket_VersioningConfigurationProperty{Status: jsii.String("Enabled")},
		LifecycleConfiguration:  &awss3.CfnBucket_LifecycleConfigurationProperty{Rules: []*awss3.CfnBucket_RuleProperty{&rule}},
	}
	encryption := &awss3.CfnBucket_ServerSideEncryptionByDefaultProperty{SseAlgorithm: jsii.String("AES256")}
	if key != "" {
		encryption = &awss3.CfnBucket_ServerSideEncryptionByDefaultProperty{SseAlgorithm: jsii.String("aws:kms"), KmsMasterKeyId: &key}
	}
	if b.accessLogs != nil {
		props.LoggingConfiguration = &awss3.CfnBucket_LoggingConfigurationProperty{
			DestinationBucketName: b.accessLogs.Ref(), LogFilePrefix: jsii.String(id + "/"),
		}
	}
	props.BucketEncryption = &awss3.CfnBucket_BucketEncryptionProperty{
		ServerSideEncryptionConfiguration: []*awss3.CfnBucket_ServerSideEncryptionRuleProperty{
			{ServerSideEncryptionByDefault: encryption, BucketKeyEnabled: jsii.Bool(key != "")},
		},
	}
	bucket := awss3.NewCfnBucket(b.stack, jsii.String(id), props)
	keep(bucket)
	arn := *bucket.AttrArn()
	statements := []policy.Statement{policy.OnlyTLS("s3", arn, arn+"/*")}
	for _, s := range more {
		s.Resources = []string{arn + "/*"}
		statements = append(statements, s)
	}
	awss3.NewCfnBucketPolicy(b.stack, jsii.String(id+"Policy"), &awss3.CfnBucketPolicyProps{
		Bucket: bucket.Ref(), PolicyDocument: policy.Document(statements...),
	})
	return bucket
}

// queues makes the control plane's own queues. The control plane creates the queue of
// a runner together with the runner.
func (b *builder) queues() {
	b.deadLetters = map[string]awssqs.CfnQueue{}
	for _, name := range []string{"Dispatch", "Audit", "Sweep", "LogIndex", "Webhook"} {
		b.deadLetters[name] = b.queue(name+"DeadLetters", &awssqs.CfnQueueProps{MessageRetentionPeriod: jsii.Number(14 * 24 * 3600)})
	}
	// The visibility timeout is six times the function's timeout, as Lambda
	// recommends. After a failed attempt, the function hides the message until the
	// next attempt, for up to 4 h. It deletes the message after eight attempts. If a
	// message is received much more than eight times, it is not an event, or the
	// function cannot read its delivery.
	b.webhooks = b.queue("Webhooks", &awssqs.CfnQueueProps{
		VisibilityTimeout: jsii.Number(6 * 60), MessageRetentionPeriod: jsii.Number(4 * 24 * 3600),
		RedrivePolicy: map[string]any{"deadLetterTargetArn": b.deadLetters["Webhook"].AttrArn(), "maxReceiveCount": 30},
	})
	// A sweep message is useless when the next sweep messages arrive. Lambda requires
	// that the visibility timeout is longer than the function's timeout. SQS moves a
	// message that was received twice to the dead-letter queue, so a failing sweep is
	// reported before the message expires. The limit is two receipts and not one,
	// because SQS itself may deliver a message twice.
	b.sweeps = b.queue("Sweeps", &awssqs.CfnQueueProps{
		VisibilityTimeout: jsii.Number(60), MessageRetentionPeriod: jsii.Number(5 * 60),
		RedrivePolicy: map[string]any{"deadLetterTargetArn": b.deadLetters["Sweep"].AttrArn(), "maxReceiveCount": 2},
	})
}

func (b *builder) queue(id string, props *awssqs.CfnQueueProps) awssqs.CfnQueue {
	// Messages hold identifiers and events without values, so SQS's own key is
	// sufficient.
	props.SqsManagedSseEnabled = jsii.Bool(true)
	return awssqs.NewCfnQueue(b.stack, jsii.String(id), props)
}

// queuePolicy lets the given rules of EventBridge send to a queue and denies all
// requests without TLS. The functions' access is in their own roles.
func (b *builder) queuePolicy(id string, q awssqs.CfnQueue, rules ...*string) {
	statements := []policy.Statement{policy.OnlyTLS("sqs", *q.AttrArn())}
	for _, rule := range rules {
		statements = append(statements, policy.Statement{
			Sid: "EventBridge", Principal: policy.Service("events.amazonaws.com"), Actions: []string{"sqs:SendMessage"}, Resources: []string{*q.AttrArn()},
			Conditions: map[string]map[string]any{"ArnEquals": {"aws:SourceArn": *rule}},
		})
	}
	awssqs.NewCfnQueuePolicy(b.stack, jsii.String(id+"Policy"), &awssqs.CfnQueuePolicyProps{
		Queues: &[]*string{q.Ref()}, PolicyDocument: policy.Document(statements...),
	})
}

// makeBus makes the bus of domain events, and the rule that sends each event to the
// webhook function's queue.
func (b *builder) makeBus() {
	b.bus = awsevents.NewCfnEventBus(b.stack, jsii.String("Bus"), &awsevents.CfnEventBusProps{
		Name: jsii.String(b.name), Description: jsii.String("domain events of Fairlead"),
	})
	rule := awsevents.NewCfnRule(b.stack, jsii.String("WebhookRule"), &awsevents.CfnRuleProps{
		Description:  jsii.String("every domain event goes to the webhook function's queue"),
		EventBusName: b.bus.Ref(), State: jsii.String("ENABLED"),
		EventPattern: map[string]any{"source": []any{"fairlead"}},
		// EventBridge tries for a day. Then the event must not be lost without an alarm.
		Targets: []*awsevents.CfnRule_TargetProperty{{Id: jsii.String("webhooks"), Arn: b.webhooks.AttrArn(),
			DeadLetterConfig: &awsevents.CfnRule_DeadLetterConfigProperty{Arn: b.deadLetters["Webhook"].AttrArn()}}},
	})
	b.queuePolicy("WebhookDeadLetters", b.deadLetters["Webhook"], rule.AttrArn())
	b.queuePolicy("Webhooks", b.webhooks, rule.AttrArn())
}
