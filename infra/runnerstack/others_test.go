package runnerstack_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/internal/infratest"
)

// accountsKeyPolicy is a key policy by which the account's own policies decide.
var accountsKeyPolicy = map[string]any{"Version": "2012-10-17", "Statement": []any{map[string]any{"Effect": "Allow", "Action": "kms:*", "Resource": "*",
	"Principal": map[string]any{"AWS": "arn:aws:iam::111122223333:root"}}}}

// An administrator's function, machine, cluster or pipeline is in the same account, and so is
// others' data. Neither an operation nor a role of the app may use them, even if its
// own policies allow everything: an administrator's function would be a takeover of the
// account. The same actions are allowed on what the install made.
func TestOthersResourcesAreOutOfReach(t *testing.T) {
	s := stack(t, "PlansReadData", "Yes")
	boundary := s.Resources["Boundary"].Properties["PolicyDocument"].(map[string]any)
	arn := func(service, resource string) string {
		return "arn:aws:" + service + ":eu-central-1:111122223333:" + resource
	}
	machine := arn("ec2", "instance/i-0123456789abcdef0")
	othersKey, ownKey := arn("kms", "key/11111111-0aa0-4aa0-8aa0-0aa00aa00aa0"), arn("kms", "key/22222222-0aa0-4aa0-8aa0-0aa00aa00aa0")
	const never = "" // no resource of this type can be the install's
	rows := []struct {
		action, resource string
		own              string // a resource that the install made; never: the action is denied everywhere
		what             string
	}{
		{"lambda:UpdateFunctionCode", arn("lambda", "function:admin"), arn("lambda", "function:web"), "an administrator's function runs other code"},
		{"lambda:UpdateFunctionConfiguration", arn("lambda", "function:admin"), arn("lambda", "function:web"), "an administrator's function loads a layer"},
		{"lambda:InvokeFunction", arn("lambda", "function:admin"), arn("lambda", "function:web"), "an administrator's function is called"},
		{"lambda:AddPermission", arn("lambda", "function:admin"), arn("lambda", "function:web"), "an administrator's function is opened"},
		{"lambda:TagResource", arn("lambda", "function:admin"), arn("lambda", "function:web"), "an administrator's function gets the install's tag"},
		{"ssm:SendCommand", machine, machine, "a command runs on another's machine"},
		{"ssm:StartSession", machine, machine, "a shell is opened on another's machine"},
		{"ec2:ModifyInstanceAttribute", machine, machine, "another's machine boots another script"},
		{"ec2:AssociateIamInstanceProfile", machine, machine, "another's machine gets a role"},
		{"ec2:TerminateInstances", machine, machine, "another's machine is removed"},
		{"ec2:CreateTags", machine, machine, "another's machine gets the install's tag"},
		{"ec2:CreateLaunchTemplateVersion", arn("ec2", "launch-template/lt-0123456789abcdef0"), arn("ec2", "launch-template/lt-0123456789abcdef0"), "the next machine of another's group boots another script under its role"},
		{"ec2:CreateSnapshot", arn("ec2", "volume/vol-0123456789abcdef0"), arn("ec2", "volume/vol-0123456789abcdef0"), "another's volume is copied"},
		{"ec2:AttachVolume", arn("ec2", "volume/vol-0123456789abcdef0"), arn("ec2", "volume/vol-0123456789abcdef0"), "another's volume is read"},
		{"eks:CreateAccessEntry", arn("eks", "cluster/others"), arn("eks", "cluster/app"), "a role of the app becomes an administrator of another's cluster"},
		{"eks:AssociateAccessPolicy", arn("eks", "access-entry/others/role/111122223333/x/1"), arn("eks", "access-entry/app/role/111122223333/x/1"), "an entry of another's cluster gets permissions"},
		{"eks:CreatePodIdentityAssociation", arn("eks", "cluster/others"), arn("eks", "cluster/app"), "a pod of another's cluster gets a role"},
		{"ecs:ExecuteCommand", arn("ecs", "task/others/0123456789abcdef0"), arn("ecs", "task/app/0123456789abcdef0"), "a shell is opened in another's container"},
		{"ecs:UpdateService", arn("ecs", "service/others/web"), arn("ecs", "service/app/web"), "another's service runs another image"},
		{"ecs:RunTask", arn("ecs", "task-definition/others:1"), arn("ecs", "task-definition/app:1"), "another's task runs with other arguments"},
		{"states:UpdateStateMachine", arn("states", "stateMachine:others"), arn("states", "stateMachine:app"), "another's state machine does something else under its role"},
		{"states:StartExecution", arn("states", "stateMachine:others"), arn("states", "stateMachine:app"), "another's state machine is started"},
		{"rds:DeleteDBCluster", arn("rds", "cluster:others"), arn("rds", "cluster:app"), "another's database is removed"},
		{"rds:ModifyDBInstance", arn("rds", "db:others"), arn("rds", "db:app"), "another's database gets a password"},
		{"rds:CreateDBSnapshot", arn("rds", "db:others"), arn("rds", "db:app"), "another's database is copied"},
		{"rds:RestoreDBInstanceFromDBSnapshot", arn("rds", "snapshot:others"), arn("rds", "snapshot:app"), "the copy of another's database is read"},
		{"rds:ModifyDBSnapshotAttribute", arn("rds", "snapshot:others"), arn("rds", "snapshot:app"), "the copy of another's database is shared"},
		{"rds:AddTagsToResource", arn("rds", "db:others"), arn("rds", "db:app"), "another's database gets the install's tag"},
		{"secretsmanager:GetSecretValue", arn("secretsmanager", "secret:others-AbCdEf"), arn("secretsmanager", "secret:app-AbCdEf"), "another's secret is read"},
		{"secretsmanager:PutResourcePolicy", arn("secretsmanager", "secret:others-AbCdEf"), arn("secretsmanager", "secret:app-AbCdEf"), "another's secret is opened"},
		{"secretsmanager:TagResource", arn("secretsmanager", "secret:others-AbCdEf"), arn("secretsmanager", "secret:app-AbCdEf"), "another's secret gets the install's tag"},
		{"ssm:GetParameter", arn("ssm", "parameter/others"), arn("ssm", "parameter/app"), "another's parameter is read"},
		{"ssm:PutParameter", arn("ssm", "parameter/others"), arn("ssm", "parameter/app"), "another's parameter is overwritten"},
		{"dynamodb:Scan", arn("dynamodb", "table/others"), arn("dynamodb", "table/app"), "another's table is read"},
		{"dynamodb:DeleteTable", arn("dynamodb", "table/others"), arn("dynamodb", "table/app"), "another's table is removed"},
		{"sqs:ReceiveMessage", arn("sqs", "others"), arn("sqs", "app"), "another's queue is read"},
		{"sqs:SetQueueAttributes", arn("sqs", "others"), arn("sqs", "app"), "another's queue is opened"},
		{"ecr:PutImage", arn("ecr", "repository/others"), arn("ecr", "repository/app"), "another's image is replaced"},
		{"ecr:SetRepositoryPolicy", arn("ecr", "repository/others"), arn("ecr", "repository/app"), "another's images are opened"},
		{"ecr:BatchDeleteImage", arn("ecr", "repository/others"), arn("ecr", "repository/app"), "another's image is removed"},
		{"ecr:TagResource", arn("ecr", "repository/others"), arn("ecr", "repository/app"), "another's repository gets the install's tag"},
		{"ecr:UntagResource", arn("ecr", "repository/others"), arn("ecr", "repository/app"), "another's repository loses its tags"},
		{"kms:PutKeyPolicy", othersKey, ownKey, "another's key is opened"},
		{"kms:ScheduleKeyDeletion", othersKey, ownKey, "another's data cannot be decrypted any more"},
		{"kms:DeleteImportedKeyMaterial", othersKey, ownKey, "another's data cannot be decrypted any more, from now on"},
		{"kms:ReplicateKey", arn("kms", "key/mrk-0123456789abcdef0123456789abcdef"), ownKey, "another's key gets a copy with a policy of its own"},
		{"kms:UpdateAlias", othersKey, ownKey, "the name of another's key leads to a key of the app"},
		{"kms:Sign", othersKey, ownKey, "the app signs as another"},
		{"kms:TagResource", othersKey, ownKey, "another's key gets the install's tag"},
		{"kms:UntagResource", othersKey, ownKey, "another's key loses its tags"},
		{"logs:TagResource", arn("logs", "log-group:others"), arn("logs", "log-group:app"), "another's log group gets the install's tag"},
		{"logs:TagLogGroup", arn("logs", "log-group:others:*"), arn("logs", "log-group:app:*"), "another's log group gets the install's tag, by the older action"},
		{"logs:UntagResource", arn("logs", "log-group:others"), arn("logs", "log-group:app"), "another's log group loses its tags"},
		{"logs:FilterLogEvents", arn("logs", "log-group:others"), arn("logs", "log-group:app"), "another's log is read"},
		{"logs:StartQuery", arn("logs", "log-group:others"), arn("logs", "log-group:app"), "another's log is searched"},
		{"logs:DeleteLogGroup", arn("logs", "log-group:others"), arn("logs", "log-group:app"), "another's log is removed"},
		{"logs:AssociateKmsKey", arn("logs", "log-group:others"), arn("logs", "log-group:app"), "another's log becomes unreadable without a key of the app"},
		{"ecr:PutLifecyclePolicy", arn("ecr", "repository/others"), arn("ecr", "repository/app"), "another's images expire"},
		{"ecr:PutReplicationConfiguration", "*", never, "each image of the account is copied to another account"},
		{"ecr:PutRegistryPolicy", "*", never, "the account's registry is opened"},
		{"ecr:PutRegistryScanningConfiguration", "*", never, "the account's images are no longer scanned"},
		{"ecr:PutAccountSetting", "*", never, "a setting of the account's registry changes"},
		{"ecr:DeleteRegistryPolicy", "*", never, "the policy of the account's registry is removed"},
		{"ecr:PutSigningConfiguration", "*", never, "the account's images get another signature"},
		{"ecr:DeleteSigningConfiguration", "*", never, "the account's images are no longer signed"},
		{"ecs:PutAccountSettingDefault", "*", never, "a default of each role of the account changes, such as the network mode or the tagging of tasks"},
		{"ec2:DisableEbsEncryptionByDefault", "*", never, "new disks of the account are no longer encrypted"},
		{"ec2:ModifyEbsDefaultKmsKeyId", "*", never, "new disks of the account are encrypted under a key of the app"},
		{"ec2:DisableImageBlockPublicAccess", "*", never, "machine images of the account can be made public"},
		{"ec2:DisableSnapshotBlockPublicAccess", "*", never, "copies of disks of the account can be made public"},
		{"ec2:ModifyVpcBlockPublicAccessOptions", "*", never, "the account's networks are opened to the internet"},
		{"s3:PutAccountPublicAccessBlock", "*", never, "buckets of the account can be made public"},
		{"ec2:CreateTrafficMirrorSession", arn("ec2", "network-interface/eni-0123456789abcdef0"), never, "another's traffic is copied to a machine of the app"},
		{"events:RetrieveConnectionCredentials", arn("events", "connection/others"), never, "the credentials of another's connection are read"},
		{"kms:DisconnectCustomKeyStore", "*", never, "keys in the account's own key store cannot be used any more"},
		{"kms:UpdateCustomKeyStore", "*", never, "the account's key store leads elsewhere"},
		{"kms:DeleteCustomKeyStore", "*", never, "the account's key store is removed"},
		{"rds:DeleteDBInstanceAutomatedBackup", arn("rds", "auto-backup:ab-others"), arn("rds", "auto-backup:ab-app"), "the backups of another's database are removed"},
		{"rds:DeleteDBClusterAutomatedBackup", arn("rds", "cluster-auto-backup:ab-others"), arn("rds", "cluster-auto-backup:ab-app"), "the backups of another's database cluster are removed"},
		{"rds:RestoreDBInstanceToPointInTime", arn("rds", "auto-backup:ab-others"), arn("rds", "auto-backup:ab-app"), "another's removed database is read from its backups"},
		{"kms:CreateGrant", othersKey, ownKey, "a role of the app gets a grant to use another's key"},
		{"kms:RevokeGrant", othersKey, ownKey, "another's database loses its key"},
		{"rds:StartExportTask", arn("rds", "snapshot:others"), arn("rds", "snapshot:app"), "the copy of another's database is exported to a bucket"},
		{"rds:StartExportTask", arn("rds", "cluster-snapshot:others"), arn("rds", "cluster-snapshot:app"), "the copy of another's database cluster is exported to a bucket"},
		{"rds:StartExportTask", arn("rds", "cluster:others"), arn("rds", "cluster:app"), "another's database cluster is exported to a bucket"},
		{"ec2:ModifyImageAttribute", "arn:aws:ec2:eu-central-1::image/ami-0123456789abcdef0", never, "a machine image is shared with another account"},
		{"ec2:CreateStoreImageTask", "arn:aws:ec2:eu-central-1::image/ami-0123456789abcdef0", never, "a machine image is copied to a bucket"},
		{"ec2:ExportImage", "arn:aws:ec2:eu-central-1::image/ami-0123456789abcdef0", never, "a machine image is exported to a bucket"},
		{"acm:ExportCertificate", arn("acm", "certificate/12345678-0aa0-4aa0-8aa0-0aa00aa00aa0"), never, "a certificate's private key is read"},
		{"ec2:AssociateEnclaveCertificateIamRole", arn("acm", "certificate/12345678-0aa0-4aa0-8aa0-0aa00aa00aa0"), never, "a role of the app gets another's certificate with its private key, for an enclave"},
		{"ssm:UpdateDocument", arn("ssm", "document/others"), arn("ssm", "document/app"), "another's document runs other commands on another's machines"},
		{"ssm:UpdateDocumentDefaultVersion", arn("ssm", "document/others"), arn("ssm", "document/app"), "an older version of another's document runs"},
		{"ssm:ModifyDocumentPermission", arn("ssm", "document/others"), arn("ssm", "document/app"), "another's document is shared"},
		{"ssm:AddTagsToResource", arn("ssm", "document/others"), arn("ssm", "document/app"), "another's document gets the install's tag"},
		{"states:GetExecutionHistory", arn("states", "execution:others:1"), never, "the input and output of each step of an execution are read: executions have no tags of their own"},
		{"events:PutTargets", arn("events", "rule/others"), arn("events", "rule/app"), "another's rule also starts a function of the app, with the events that it receives"},
		{"events:PutTargets", arn("events", "rule/bus/others"), arn("events", "rule/bus/app"), "the same for a rule on a bus of its own"},
		{"events:RemoveTargets", arn("events", "rule/others"), arn("events", "rule/app"), "another's rule starts nothing any more"},
		{"events:DisableRule", arn("events", "rule/others"), arn("events", "rule/app"), "another's rule is switched off"},
		{"events:TagResource", arn("events", "rule/others"), arn("events", "rule/app"), "another's rule gets the install's tag"},
		{"sns:Subscribe", arn("sns", "others"), arn("sns", "app"), "another's messages are received"},
		{"sns:SetTopicAttributes", arn("sns", "others"), arn("sns", "app"), "another's topic is opened"},
		{"sns:AddPermission", arn("sns", "others"), arn("sns", "app"), "another's topic is opened to an account"},
		{"sns:DeleteTopic", arn("sns", "others"), arn("sns", "app"), "another's topic is removed"},
		{"sns:TagResource", arn("sns", "others"), arn("sns", "app"), "another's topic gets the install's tag"},
		{"logs:PutRetentionPolicy", arn("logs", "log-group:others"), arn("logs", "log-group:app"), "another's log expires after a day"},
		{"logs:PutSubscriptionFilter", arn("logs", "log-group:others"), arn("logs", "log-group:app"), "another's log is copied elsewhere"},
		{"logs:GetLogEvents", arn("logs", "log-group:others:log-stream:web"), never, "another's log is read, stream by stream: streams have no tags"},
		{"logs:GetLogEvents", arn("logs", "log-group:/fairlead/"+install+"/runner:log-stream:step/step/1"), never, "the output of the jobs' steps is read"},
		{"logs:CreateExportTask", arn("logs", "log-group:others"), arn("logs", "log-group:app"), "another's log is copied to a bucket"},
		{"logs:PutAccountPolicy", "*", never, "each log of the account is copied elsewhere"},
		{"logs:DeleteAccountPolicy", "*", never, "the account's logs are no longer copied, or show what was masked"},
		{"ssm:CreateAssociation", arn("ssm", "document/AWS-RunShellScript"), never, "commands run on each machine with a tag"},
		{"ssm:ResumeSession", arn("ssm", "session/admin-0123456789abcdef0"), never, "the shell of an administrator is taken over"},
		{"ssm:StartAutomationExecution", arn("ssm", "automation-definition/AWS-UpdateLinuxAmi:1"), never, "an automation uses another's role"},
		{"ssm:RegisterTaskWithMaintenanceWindow", arn("ssm", "maintenancewindow/mw-0123456789abcdef0"), never, "commands run at another's maintenance window"},
		{"cloudformation:UpdateStack", arn("cloudformation", "stack/others/1"), never, "another's stack changes under its own role"},
		{"codebuild:StartBuild", arn("codebuild", "project/others"), never, "another's build runs other commands"},
	}
	all := []map[string]any{policyOf("*")}
	app := "arn:aws:iam::111122223333:role/fairlead-app/" + install + "/web"
	var questions []infratest.Question
	var want []bool
	var what []string
	ask := func(q infratest.Question, allowed bool, why string) {
		q.Account, q.Boundary = infratest.Account, boundary
		if strings.HasPrefix(q.Action, "kms:") {
			q.ResourceP = accountsKeyPolicy
		}
		questions, want, what = append(questions, q), append(want, allowed), append(what, why)
	}
	foreign := map[string]map[string]any{"no tag": nil, "another install's tag": {"aws:ResourceTag/fairlead_install": "ins_01hzy3v5k8d9m0q2r4t6w8x0z2"}}
	for _, r := range rows {
		for tag, context := range foreign {
			for _, role := range []string{"ProvisionRole", "DeployRole", "DeprovisionRole", "ReadOnlyRole"} {
				ask(infratest.Question{Principal: s.ARN(role), Action: r.action, Resource: r.resource, Context: context, Identity: append(s.Policies(role), managed(t, s, role)...)}, false, role+", "+tag+": "+r.what)
			}
			// The request's own tags do not help: they are not the resource's.
			asks := merge(context, map[string]any{"aws:RequestTag/fairlead_install": install})
			if r.action == "ssm:PutParameter" { // an overwrite has no tags
				asks = context
			}
			ask(infratest.Question{Principal: app, Action: r.action, Resource: r.resource, Context: asks, Identity: all}, false, "a role of the app, "+tag+": "+r.what)
		}
		if r.own != never {
			ask(infratest.Question{Principal: app, Action: r.action, Resource: r.own, Context: map[string]any{"aws:ResourceTag/fairlead_install": install}, Identity: all}, true,
				"a role of the app uses "+r.action+" on what the install made")
		}
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if allowed != want[i] {
			t.Errorf("%s (%s on %s): %t, want %t", what[i], questions[i].Action, questions[i].Resource, allowed, want[i])
		}
	}
	t.Logf("%d questions", len(questions))
}

// AWS's own services make images, logs and keys without the install's tag, and so do other
// teams. What an app needs of these is allowed, and so is what makes a resource with the tag.
func TestBoundaryLeavesWhatAppsNeed(t *testing.T) {
	s := stack(t)
	boundary := s.Resources["Boundary"].Properties["PolicyDocument"].(map[string]any)
	arn := func(service, resource string) string {
		return "arn:aws:" + service + ":eu-central-1:111122223333:" + resource
	}
	tagged := map[string]any{"aws:RequestTag/fairlead_install": install}
	asNew := merge(tagged, map[string]any{"aws:ResourceTag/fairlead_install": install})
	const others = "key/11111111-0aa0-4aa0-8aa0-0aa00aa00aa0"
	var questions []infratest.Question
	var what []string
	for _, r := range []struct {
		action, resource string
		context          map[string]any
		what             string
	}{
		{"kms:CreateKey", "*", tagged, "a key is made"},
		{"kms:TagResource", arn("kms", "key/*"), tagged, "a new key gets the tag: KMS asks for no key"},
		{"kms:TagResource", "*", tagged, "a new key gets the tag, if KMS asks for all keys"},
		{"kms:CreateGrant", arn("kms", others), map[string]any{"kms:ViaService": "rds.eu-central-1.amazonaws.com"}, "a database uses AWS's own key for databases"},
		{"kms:Decrypt", arn("kms", others), map[string]any{"kms:ViaService": "s3.eu-central-1.amazonaws.com"}, "an object under a key of the customer is read"},
		{"kms:GenerateDataKey", arn("kms", others), nil, "data is encrypted under a key of the customer"},
		{"kms:CreateGrant", "arn:aws:kms:eu-central-1:999988887777:" + others, nil, "a key of another account, whose policy decides"},
		{"ecr:CreateRepository", arn("ecr", "repository/app"), tagged, "a repository is made"},
		{"ecr:TagResource", arn("ecr", "repository/app"), asNew, "a new repository gets the tag"},
		{"ecr:BatchGetImage", arn("ecr", "repository/others"), nil, "an image of the customer is pulled"},
		{"ecr:GetDownloadUrlForLayer", arn("ecr", "repository/others"), nil, "an image of the customer is pulled"},
		{"ecr:BatchCheckLayerAvailability", arn("ecr", "repository/others"), nil, "an image of the customer is pulled"},
		{"ecr:BatchImportUpstreamImage", arn("ecr", "repository/others"), nil, "an image is pulled through the customer's cache"},
		{"logs:CreateLogGroup", arn("logs", "log-group:/aws/lambda/web"), nil, "a function makes its log group"},
		{"logs:CreateLogStream", arn("logs", "log-group:/aws/lambda/web:log-stream:1"), nil, "a function writes its log"},
		{"logs:PutLogEvents", arn("logs", "log-group:/aws/lambda/web:log-stream:1"), nil, "a function writes its log"},
		{"logs:TagResource", arn("logs", "log-group:app"), asNew, "a new log group gets the tag"},
		{"logs:DescribeLogStreams", arn("logs", "log-group:others"), nil, "the configuration of a log group is read"},
		{"logs:CreateLogDelivery", "*", nil, "an API logs its requests"},
		{"logs:GetLogDelivery", "*", nil, "an API logs its requests"},
		{"sns:CreateTopic", arn("sns", "app"), tagged, "a topic is made"},
		{"sns:TagResource", arn("sns", "app"), asNew, "a new topic gets the tag"},
		{"sns:Publish", arn("sns", "others"), nil, "an alarm goes to a topic of the customer"},
		{"sns:CreatePlatformEndpoint", "*", nil, "a telephone is registered"},
		{"sns:Subscribe", "arn:aws:sns:us-east-1:999988887777:changes", nil, "a topic of another account, whose policy decides"},
		{"events:PutRule", arn("events", "rule/app"), tagged, "a rule is made"},
		{"events:TagResource", arn("events", "rule/app"), asNew, "a new rule gets the tag"},
		{"events:PutTargets", arn("events", "rule/StepFunctionsGetEventsForECSTaskRule"), map[string]any{"events:ManagedBy": "states.amazonaws.com"}, "a state machine waits for a task, by a rule of AWS"},
		{"ssm:CreateDocument", arn("ssm", "document/app"), tagged, "a document is made"},
		{"ssm:AddTagsToResource", arn("ssm", "document/app"), asNew, "a new document gets the tag"},
		{"ssm:GetDocument", arn("ssm", "document/others"), nil, "the agent on a machine of the app reads a document of the customer"},
		{"ssm:SendCommand", "arn:aws:ssm:eu-central-1:000000000000:document/AWS-RunShellScript", nil, "a document of AWS runs: its ARN has no account, which the simulator does not take"},
		{"ec2:RunInstances", "arn:aws:ec2:eu-central-1::image/ami-0123456789abcdef0", nil, "a machine starts from an image of the customer or of AWS"},
	} {
		q := infratest.Question{Principal: "arn:aws:iam::111122223333:role/fairlead-app/" + install + "/web", Action: r.action, Resource: r.resource, Account: infratest.Account, Context: r.context,
			Identity: []map[string]any{policyOf("*")}, Boundary: boundary}
		if strings.HasPrefix(r.action, "kms:") {
			q.ResourceP = accountsKeyPolicy
		}
		if strings.Contains(r.resource, ":999988887777:") {
			q.Account = "999988887777"
			q.ResourceP = map[string]any{"Version": "2012-10-17", "Statement": []any{map[string]any{"Effect": "Allow", "Action": "*", "Resource": "*", "Principal": map[string]any{"AWS": "arn:aws:iam::111122223333:root"}}}}
		}
		questions, what = append(questions, q), append(what, r.what)
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if q := questions[i]; !allowed {
			t.Errorf("%s: the app may not %s on %s with %v", what[i], q.Action, q.Resource, q.Context)
		}
	}
}
