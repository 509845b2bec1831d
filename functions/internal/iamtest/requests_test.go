package iamtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/tools/iamsimulator"
)

const keyARN = "arn:aws:kms:eu-central-1:111122223333:key/00000000-0000-0000-0000-000000000001"

func testGuard() *Guard {
	g := New(Options{Account: "111122223333", Region: "eu-central-1", Now: time.Now})
	g.AddTable("jobs", Table{PartitionKey: "pk"})
	g.AddTable("sealed", Table{PartitionKey: "pk", Key: keyARN})
	g.AddBucket("plain", "")
	g.AddBucket("states", keyARN)
	return g
}

// request builds a request: an operation in JSON, or a method and a URL for S3.
func request(name, what, body string) *http.Request {
	if !strings.HasPrefix(name, "S3") && name != "registry" {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("X-Amz-Target", what)
		return r
	}
	method, target, _ := strings.Cut(what, " ")
	return httptest.NewRequest(method, target, strings.NewReader(body))
}

func derive(g *Guard, name, what, body string) ([]Call, error) {
	r := request(name, what, body)
	if name == "registry" {
		return g.RegistryCalls(r)
	}
	return services[name].calls(g, operation(r), r, []byte(body))
}

// Each row is a request and the permissions that AWS's documentation requires for it. The
// simulator confirms that IAM knows each action with this resource and these conditions.
func TestRequestsNeedTheirPermissions(t *testing.T) {
	const here = ":eu-central-1:111122223333:"
	via := func(service string) string {
		return `{"kms:CallerAccount":"111122223333","kms:ViaService":"` + service + `.eu-central-1.amazonaws.com"}`
	}
	rows := []struct {
		service, what, body string
		want                []string // action, resource and context
	}{
		{"SQS", "AmazonSQS.ReceiveMessage", `{"QueueUrl":"https://sqs.eu-central-1.amazonaws.com/111122223333/a-q"}`, []string{"sqs:ReceiveMessage arn:aws:sqs" + here + "a-q (tags)"}},
		{"SQS", "AmazonSQS.SendMessageBatch", `{"QueueUrl":"http://127.0.0.1:1/queue/a-q"}`, []string{"sqs:SendMessage arn:aws:sqs" + here + "a-q (tags)"}},
		{"SQS", "AmazonSQS.CreateQueue", `{"QueueName":"a-q","tags":{"x":"1"}}`, []string{
			`sqs:CreateQueue arn:aws:sqs` + here + `a-q {"aws:RequestTag/x":"1","aws:TagKeys":["x"]}`, `sqs:TagQueue arn:aws:sqs` + here + `a-q {"aws:RequestTag/x":"1","aws:ResourceTag/x":"1","aws:TagKeys":["x"]}`}},
		{"SQS", "AmazonSQS.SetQueueAttributes", `{"QueueUrl":"https://sqs.eu-central-1.amazonaws.com/111122223333/a-q"}`, []string{"sqs:SetQueueAttributes arn:aws:sqs" + here + "a-q (tags)"}},
		{"CLOUDWATCH_LOGS", "Logs_20140328.PutLogEvents", `{"logGroupName":"/g","logStreamName":"job_1/1"}`, []string{"logs:PutLogEvents arn:aws:logs" + here + "log-group:/g:log-stream:job_1/1"}},
		{"CLOUDWATCH_LOGS", "Logs_20140328.PutSubscriptionFilter", `{"logGroupName":"/g"}`, []string{"logs:PutSubscriptionFilter arn:aws:logs" + here + "log-group:/g (tags)"}},
		{"CLOUDWATCH_LOGS", "Logs_20140328.CreateLogGroup", `{"logGroupName":"/g","tags":{"x":"1"}}`, []string{`logs:CreateLogGroup arn:aws:logs` + here + `log-group:/g {"aws:RequestTag/x":"1","aws:TagKeys":["x"]}`,
			`logs:TagResource arn:aws:logs` + here + `log-group:/g {"aws:RequestTag/x":"1","aws:ResourceTag/x":"1","aws:TagKeys":["x"]}`}},
		{"CLOUDWATCH_LOGS", "Logs_20140328.ListTagsForResource", `{"resourceArn":"arn:aws:logs` + here + `log-group:/g"}`, []string{"logs:ListTagsForResource arn:aws:logs" + here + "log-group:/g (tags)"}},
		{"CLOUDWATCH_LOGS", "Logs_20140328.DescribeLogGroups", `{"logGroupNamePrefix":"/g"}`, []string{"logs:DescribeLogGroups *"}},
		{"KMS", "TrentService.Sign", `{"KeyId":"` + keyARN + `","SigningAlgorithm":"ED25519_SHA_512"}`, []string{
			`kms:Sign ` + keyARN + ` {"kms:CallerAccount":"111122223333","kms:SigningAlgorithm":"ED25519_SHA_512"}`}},
		{"KMS", "TrentService.Decrypt", `{"CiphertextBlob":"MDAwMDAwMDAtMDAwMC0wMDAwLTAwMDAtMDAwMDAwMDAwMDAxeHg=","EncryptionContext":{"row":"a"}}`, []string{
			`kms:Decrypt ` + keyARN + ` {"kms:CallerAccount":"111122223333","kms:EncryptionContext:row":"a"}`}},
		{"DYNAMODB", "DynamoDB_20120810.GetItem", `{"TableName":"jobs","Key":{"pk":{"S":"a"},"sk":{"S":"b"}}}`, []string{`dynamodb:GetItem arn:aws:dynamodb` + here + `table/jobs {"dynamodb:LeadingKeys":["a"]}`}},
		{"DYNAMODB", "DynamoDB_20120810.GetItem", `{"TableName":"sealed","Key":{"pk":{"S":"a"}}}`, []string{
			`dynamodb:GetItem arn:aws:dynamodb` + here + `table/sealed {"dynamodb:LeadingKeys":["a"]}`, `kms:Decrypt ` + keyARN + ` ` + via("dynamodb")}},
		{"DYNAMODB", "DynamoDB_20120810.Query", `{"TableName":"jobs","IndexName":"list"}`, []string{`dynamodb:Query arn:aws:dynamodb` + here + `table/jobs/index/list {"dynamodb:LeadingKeys":{}}`}},
		{"DYNAMODB", "DynamoDB_20120810.Query", `{"TableName":"jobs","IndexName":"list","KeyConditionExpression":"lp = :p AND begins_with(ls, :prefix)","ExpressionAttributeValues":{":p":{"S":"ORG#a"},":prefix":{"S":"x"}}}`, []string{
			`dynamodb:Query arn:aws:dynamodb` + here + `table/jobs/index/list {"dynamodb:LeadingKeys":["ORG#a"]}`}},
		{"DYNAMODB", "DynamoDB_20120810.Query", `{"TableName":"jobs","KeyConditionExpression":"sk < :s AND pk = :p","ExpressionAttributeValues":{":p":{"S":"ORG#a"},":s":{"S":"x"}}}`, []string{
			`dynamodb:Query arn:aws:dynamodb` + here + `table/jobs {"dynamodb:LeadingKeys":{}}`}},
		{"DYNAMODB", "DynamoDB_20120810.TransactWriteItems", `{"TransactItems":[{"Put":{"TableName":"jobs","Item":{"pk":{"S":"a"},"x":{"N":"1"}}}},{"ConditionCheck":{"TableName":"jobs","Key":{"pk":{"S":"b"}}}}]}`, []string{
			`dynamodb:PutItem arn:aws:dynamodb` + here + `table/jobs {"dynamodb:LeadingKeys":["a","b"]}`, `dynamodb:ConditionCheckItem arn:aws:dynamodb` + here + `table/jobs {"dynamodb:LeadingKeys":["a","b"]}`}},
		{"DYNAMODB", "DynamoDB_20120810.BatchGetItem", `{"RequestItems":{"jobs":{"Keys":[{"pk":{"S":"a"}}]}}}`, []string{`dynamodb:BatchGetItem arn:aws:dynamodb` + here + `table/jobs {"dynamodb:LeadingKeys":["a"]}`}},
		{"S3", "GET https://states.s3.eu-central-1.amazonaws.com/state/a?x-id=GetObject", "", []string{"s3:GetObject arn:aws:s3:::states/state/a", "kms:Decrypt " + keyARN + " " + via("s3")}},
		{"S3", "PUT http://127.0.0.1:1/states/state/a", "", []string{"s3:PutObject arn:aws:s3:::states/state/a", "kms:GenerateDataKey " + keyARN + " " + via("s3")}},
		{"S3", "HEAD http://127.0.0.1:1/plain/a", "", []string{"s3:GetObject arn:aws:s3:::plain/a"}},
		{"S3", "DELETE http://127.0.0.1:1/plain/a?versionId=1", "", []string{"s3:DeleteObjectVersion arn:aws:s3:::plain/a"}},
		{"S3", "GET http://127.0.0.1:1/plain?list-type=2&prefix=a", "", []string{`s3:ListBucket arn:aws:s3:::plain {"s3:prefix":"a"}`}},
		{"S3", "HEAD https://app-1.s3.eu-central-1.amazonaws.com/", "", []string{"s3:ListBucket arn:aws:s3:::app-1"}},
		{"S3", "PUT https://app-1.s3.eu-central-1.amazonaws.com/", `<CreateBucketConfiguration><Tags><Tag><Key>x</Key><Value>1</Value></Tag></Tags></CreateBucketConfiguration>`, []string{
			`s3:CreateBucket arn:aws:s3:::app-1 {"aws:RequestTag/x":"1","aws:TagKeys":["x"]}`, `s3:TagResource arn:aws:s3:::app-1 {"aws:RequestTag/x":"1","aws:TagKeys":["x"]}`}},
		{"S3", "PUT https://app-1.s3.eu-central-1.amazonaws.com/?policy", "{}", []string{"s3:PutBucketPolicy arn:aws:s3:::app-1"}},
		{"S3", "DELETE https://app-1.s3.eu-central-1.amazonaws.com/?policy", "", []string{"s3:DeleteBucketPolicy arn:aws:s3:::app-1"}},
		{"S3", "DELETE https://app-1.s3.eu-central-1.amazonaws.com/?lifecycle", "", []string{"s3:PutLifecycleConfiguration arn:aws:s3:::app-1"}},
		{"S3", "GET https://app-1.s3.eu-central-1.amazonaws.com/?object-lock", "", []string{"s3:GetBucketObjectLockConfiguration arn:aws:s3:::app-1"}},
		{"S3", "DELETE https://app-1.s3.eu-central-1.amazonaws.com/", "", []string{"s3:DeleteBucket arn:aws:s3:::app-1"}},
		{"S3_CONTROL", "GET https://111122223333.s3-control.eu-central-1.amazonaws.com/v20180820/tags/arn%3Aaws%3As3%3A%3A%3Aapp-1", "", []string{"s3:ListTagsForResource arn:aws:s3:::app-1"}},
		{"S3", "POST http://127.0.0.1:1/plain?delete", `<Delete><Object><Key>a</Key></Object><Object><Key>b</Key><VersionId>1</VersionId></Object></Delete>`, []string{
			"s3:DeleteObject arn:aws:s3:::plain/a", "s3:DeleteObjectVersion arn:aws:s3:::plain/b"}},
		{"EVENTBRIDGE", "AWSEvents.PutEvents", `{"Entries":[{"EventBusName":"b","Source":"fairlead","DetailType":"x"},{"EventBusName":"b","Source":"other","DetailType":"x"}]}`, []string{
			`events:PutEvents arn:aws:events` + here + `event-bus/b {"events:detail-type":["x"],"events:source":["fairlead","other"]}`}},
		{"SSM", "AmazonSSM.GetParameter", `{"Name":"/fairlead/x/mode"}`, []string{"ssm:GetParameter arn:aws:ssm" + here + "parameter/fairlead/x/mode"}},
		{"SECRETS_MANAGER", "secretsmanager.GetSecretValue", `{"SecretId":"arn:aws:secretsmanager` + here + `secret:x-AbCdEf"}`, []string{"secretsmanager:GetSecretValue arn:aws:secretsmanager" + here + "secret:x-AbCdEf"}},
		{"CODEBUILD", "CodeBuild_20161006.StartBuild", `{"projectName":"p","idempotencyToken":"t"}`, []string{"codebuild:StartBuild arn:aws:codebuild" + here + "project/p"}},
		{"CODEBUILD", "CodeBuild_20161006.StartBuild", `{"projectName":"p","buildspecOverride":"x"}`, []string{`codebuild:StartBuild arn:aws:codebuild` + here + `project/p {"codebuild:source.buildspec":"x"}`}},
		{"CODEBUILD", "CodeBuild_20161006.BatchGetBuilds", `{"ids":["p:1","q:2"]}`, []string{"codebuild:BatchGetBuilds arn:aws:codebuild" + here + "project/p", "codebuild:BatchGetBuilds arn:aws:codebuild" + here + "project/q"}},
		{"CODEBUILD", "CodeBuild_20161006.StopBuild", `{"id":"p:1"}`, []string{"codebuild:StopBuild arn:aws:codebuild" + here + "project/p"}},
		{"ECR", "AmazonEC2ContainerRegistry_V20150921.CreateRepository", `{"repositoryName":"app/web"}`, []string{"ecr:CreateRepository arn:aws:ecr" + here + "repository/app/web"}},
		{"ECR", "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken", `{}`, []string{"ecr:GetAuthorizationToken *"}},
		{"registry", "GET /v2/app/web/manifests/latest", "", []string{"ecr:BatchGetImage arn:aws:ecr" + here + "repository/app/web (tags)"}},
		{"registry", "GET /v2/app/web/referrers/sha256:00", "", []string{"ecr:BatchGetImage arn:aws:ecr" + here + "repository/app/web (tags)"}},
		{"registry", "PUT /v2/app/web/manifests/latest", "", []string{"ecr:PutImage arn:aws:ecr" + here + "repository/app/web (tags)"}},
		{"registry", "GET /v2/app/web/blobs/sha256:00", "", []string{"ecr:GetDownloadUrlForLayer arn:aws:ecr" + here + "repository/app/web (tags)"}},
		{"registry", "PATCH /v2/app/web/blobs/uploads/1", "", []string{"ecr:UploadLayerPart arn:aws:ecr" + here + "repository/app/web (tags)"}},
		{"ECS", "AmazonEC2ContainerServiceV20141113.RunTask", `{"cluster":"c","taskDefinition":"step:1","tags":[{"key":"x","value":"1"}],"overrides":{"taskRoleArn":"arn:aws:iam::111122223333:role/s"}}`, []string{
			`ecs:RunTask arn:aws:ecs` + here + `task-definition/step:1 {"ecs:cluster":"arn:aws:ecs` + here + `cluster/c"}`, `iam:PassRole arn:aws:iam::111122223333:role/s {"iam:PassedToService":"ecs-tasks.amazonaws.com"}`,
			`ecs:TagResource arn:aws:ecs` + here + `task/c/* {"aws:RequestTag/x":"1","aws:TagKeys":["x"],"ecs:CreateAction":"RunTask"}`}},
		{"ECS", "AmazonEC2ContainerServiceV20141113.StopTask", `{"cluster":"c","task":"1"}`, []string{`ecs:StopTask arn:aws:ecs` + here + `task/c/1 {"ecs:cluster":"arn:aws:ecs` + here + `cluster/c"} (tags)`}},
		{"ECS", "AmazonEC2ContainerServiceV20141113.CreateCluster", `{"clusterName":"c","tags":[{"key":"x","value":"1"}]}`, []string{`ecs:CreateCluster arn:aws:ecs` + here + `cluster/c {"aws:RequestTag/x":"1","aws:TagKeys":["x"]}`,
			`ecs:TagResource arn:aws:ecs` + here + `cluster/c {"aws:RequestTag/x":"1","aws:TagKeys":["x"],"ecs:CreateAction":"CreateCluster"}`}},
		{"ECS", "AmazonEC2ContainerServiceV20141113.TagResource", `{"resourceArn":"arn:aws:ecs` + here + `cluster/c","tags":[{"key":"x","value":"1"}]}`, []string{
			`ecs:TagResource arn:aws:ecs` + here + `cluster/c {"aws:RequestTag/x":"1","aws:TagKeys":["x"]} (tags)`}},
		{"ECS", "AmazonEC2ContainerServiceV20141113.RegisterTaskDefinition", `{"family":"f","taskRoleArn":"arn:aws:iam::111122223333:role/t","executionRoleArn":"arn:aws:iam::111122223333:role/e"}`, []string{
			`ecs:RegisterTaskDefinition arn:aws:ecs` + here + `task-definition/f:*`, `iam:PassRole arn:aws:iam::111122223333:role/t {"iam:PassedToService":"ecs-tasks.amazonaws.com"}`,
			`iam:PassRole arn:aws:iam::111122223333:role/e {"iam:PassedToService":"ecs-tasks.amazonaws.com"}`}},
		{"ECS", "AmazonEC2ContainerServiceV20141113.DeregisterTaskDefinition", `{"taskDefinition":"f:1"}`, []string{"ecs:DeregisterTaskDefinition *"}},
		{"ECS", "AmazonEC2ContainerServiceV20141113.CreateService", `{"cluster":"c","serviceName":"s","propagateTags":"SERVICE","tags":[{"key":"x","value":"1"}]}`, []string{
			`ecs:CreateService arn:aws:ecs` + here + `service/c/s {"aws:RequestTag/x":"1","aws:TagKeys":["x"],"ecs:cluster":"arn:aws:ecs` + here + `cluster/c"}`,
			`ecs:TagResource arn:aws:ecs` + here + `service/c/s {"aws:RequestTag/x":"1","aws:TagKeys":["x"],"ecs:CreateAction":"CreateService"}`}},
		{"ECS", "AmazonEC2ContainerServiceV20141113.DeleteService", `{"cluster":"arn:aws:ecs` + here + `cluster/c","service":"s"}`, []string{
			`ecs:DeleteService arn:aws:ecs` + here + `service/c/s {"ecs:cluster":"arn:aws:ecs` + here + `cluster/c"} (tags)`}},
		{"ECS", "AmazonEC2ContainerServiceV20141113.PutClusterCapacityProviders", `{"cluster":"c"}`, []string{`ecs:PutClusterCapacityProviders arn:aws:ecs` + here + `cluster/c (tags)`}},
		{"EC2", "", "Action=DescribeSecurityGroups&Version=2016-11-15", []string{"ec2:DescribeSecurityGroups *"}},
		{"EC2", "", "Action=CreateSecurityGroup&VpcId=vpc-1&TagSpecification.1.ResourceType=security-group&TagSpecification.1.Tag.1.Key=x&TagSpecification.1.Tag.1.Value=1", []string{
			`ec2:CreateSecurityGroup arn:aws:ec2` + here + `security-group/* {"aws:RequestTag/x":"1","aws:TagKeys":["x"]}`,
			`ec2:CreateTags arn:aws:ec2` + here + `security-group/* {"aws:RequestTag/x":"1","aws:TagKeys":["x"],"ec2:CreateAction":"CreateSecurityGroup"}`, `ec2:CreateSecurityGroup arn:aws:ec2` + here + `vpc/vpc-1 (tags)`}},
		{"EC2", "", "Action=AuthorizeSecurityGroupEgress&GroupId=sg-1", []string{`ec2:AuthorizeSecurityGroupEgress arn:aws:ec2` + here + `security-group/sg-1 (tags)`,
			`ec2:AuthorizeSecurityGroupEgress arn:aws:ec2` + here + `security-group-rule/*`}},
		{"EC2", "", "Action=DeleteSecurityGroup&GroupId=sg-1", []string{`ec2:DeleteSecurityGroup arn:aws:ec2` + here + `security-group/sg-1 (tags)`}},
		{"IAM", "", "Action=CreateRole&RoleName=web&Path=%2Fapp%2F&PermissionsBoundary=arn%3Aaws%3Aiam%3A%3A111122223333%3Apolicy%2Fb&Tags.member.1.Key=x&Tags.member.1.Value=1", []string{
			`iam:CreateRole arn:aws:iam::111122223333:role/app/web {"aws:RequestTag/x":"1","aws:TagKeys":["x"],"iam:PermissionsBoundary":"arn:aws:iam::111122223333:policy/b"}`,
			`iam:TagRole arn:aws:iam::111122223333:role/app/web {"aws:RequestTag/x":"1","aws:ResourceTag/x":"1","aws:TagKeys":["x"]}`}},
	}
	g := testGuard()
	var questions []iamsimulator.Question
	for _, r := range rows {
		calls, err := derive(g, r.service, r.what, r.body)
		if err != nil {
			t.Errorf("%s: %v", r.what, err)
			continue
		}
		var got []string
		for _, c := range calls {
			text := c.Action + " " + c.Resource
			if len(c.Context) > 0 {
				context, err := json.Marshal(c.Context)
				if err != nil {
					t.Fatal(err)
				}
				text += " " + string(context)
			}
			if c.Existing {
				text += " (tags)"
			}
			got = append(got, text)
			context := maps.Clone(c.Context)
			maps.DeleteFunc(context, func(_ string, v any) bool { return v == any(underivable{}) })
			questions = append(questions, iamsimulator.Question{Principal: "arn:aws:iam::111122223333:role/x", Action: c.Action, Resource: c.Resource, Account: "111122223333", Context: context})
		}
		if !slices.Equal(got, r.want) {
			t.Errorf("%s needs\n%s\nwant\n%s", r.what, strings.Join(got, "\n"), strings.Join(r.want, "\n"))
		}
	}
	simulator := iamsimulator.Start(t)
	defer simulator.Stop()
	if _, err := simulator.Ask(questions); err != nil {
		t.Error(err)
	}
}

// A request whose permissions are not known has none: the guard refuses and reports it.
func TestUnknownRequestIsRefused(t *testing.T) {
	g := testGuard()
	for _, r := range []struct{ service, what, body string }{
		{"SQS", "AmazonSQS.ListQueues", `{}`},
		{"SQS", "AmazonSQS.ReceiveMessage", `not JSON`},
		{"SQS", "AmazonSQS.TagQueue", `{"QueueUrl":"http://127.0.0.1:1/queue/a-q","Tags":{"x":"1"}}`},
		{"CLOUDWATCH_LOGS", "Logs_20140328.DescribeLogStreams", `{}`},
		{"EC2", "", "Action=CreateTags&ResourceId.1=sg-1"},
		{"EC2", "", "Action=RunInstances"},
		{"EC2", "", "Action=DeleteSecurityGroup&GroupName=x"},
		{"IAM", "", "Action=CreateUser&UserName=x"},
		{"IAM", "", "Action=UpdateAssumeRolePolicy&RoleName=x"},
		{"IAM", "", "Action=GetRole&RoleName=x"}, // the guard of this test has no server
		{"S3_CONTROL", "DELETE https://111122223333.s3-control.eu-central-1.amazonaws.com/v20180820/tags/arn%3Aaws%3As3%3A%3A%3Aapp-1", ""},
		{"KMS", "TrentService.Sign", `{"KeyId":"alias/x"}`},
		{"KMS", "TrentService.ReEncrypt", `{"KeyId":"x"}`},
		{"DYNAMODB", "DynamoDB_20120810.ExecuteStatement", `{"Statement":"SELECT * FROM jobs"}`},
		{"DYNAMODB", "DynamoDB_20120810.GetItem", `{"TableName":"unknown"}`},
		{"DYNAMODB", "DynamoDB_20120810.TransactWriteItems", `{"TransactItems":[{"Replace":{"TableName":"jobs"}}]}`},
		{"DYNAMODB", "DynamoDBStreams_20120810.GetRecords", `{"TableName":"jobs"}`},
		{"S3", "GET http://127.0.0.1:1/unknown/a", ""},
		{"S3", "GET http://127.0.0.1:1/plain?analytics", ""},
		{"S3", "PUT http://127.0.0.1:1/plain?notification", ""},
		{"S3", "PUT http://127.0.0.1:1/plain?encryption", "<KMSMasterKeyID>x</KMSMasterKeyID>"},
		{"S3", "PUT http://127.0.0.1:1/plain", "no XML"},
		{"EVENTBRIDGE", "AWSEvents.PutEvents", `{"Entries":[{"Source":"fairlead"}]}`},
		{"EVENTBRIDGE", "AWSEvents.PutRule", `{}`},
		{"SSM", "AmazonSSM.GetParameter", `{"Name":"x","WithDecryption":true}`},
		{"SECRETS_MANAGER", "secretsmanager.GetSecretValue", `{"SecretId":"x"}`},
		{"ECR", "AmazonEC2ContainerRegistry_V20150921.DescribeRepositories", `{}`},
		{"registry", "GET /v2/_catalog", ""},
		{"registry", "DELETE /v2/app/web/blobs/sha256:00", ""},
		{"ECS", "AmazonEC2ContainerServiceV20141113.RegisterTaskDefinition", `{"cluster":"c"}`},
	} {
		if calls, err := derive(g, r.service, r.what, r.body); !errors.Is(err, errUnknown) {
			t.Errorf("%s %s needs %v, %v, want an error", r.service, r.what, calls, err)
		}
	}
	if _, err := g.Handler("ATHENA", nil); err == nil {
		t.Error("a service whose requests are not known is served")
	}
}

// A policy that names a condition key which the guard cannot derive gets no decision.
func TestConditionThatCannotBeDerivedIsRefused(t *testing.T) {
	var reports []string
	g := testGuard()
	g.Report = func(err error) { reports = append(reports, fmt.Sprint(err)) }
	g.AddRole(Role{ARN: "arn:aws:iam::111122223333:role/x", Policies: []Policy{{"Version": "2012-10-17", "Statement": []any{map[string]any{"Effect": "Allow", "Action": "dynamodb:Query", "Resource": "*",
		"Condition": map[string]any{"ForAllValues:StringLike": map[string]any{"dynamodb:LeadingKeys": "a*"}}}}}}})
	k, err := g.Give("arn:aws:iam::111122223333:role/x", "s")
	if err != nil {
		t.Fatal(err)
	}
	calls, err := derive(g, "DYNAMODB", "DynamoDB_20120810.Query", `{"TableName":"jobs"}`)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Authorize(k.AccessKeyID, calls...); err == nil || len(reports) != 1 || !strings.Contains(reports[0], "dynamodb:LeadingKeys") {
		t.Errorf("got %v and the reports %q, want one that names the key", err, reports)
	}
}
