package iamtest

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/pattern"
)

// The methods of this file return the calls of a request, one for each permission that it
// needs. A request with a field whose permissions are not known is an error. The simulator
// refuses an action that IAM does not know, so an unknown operation is an error too.

// arn returns the ARN of a resource of the account and region.
func (g *Guard) arn(service, resource string) string {
	return "arn:aws:" + service + ":" + g.Region + ":" + g.Account + ":" + resource
}

// named returns the ARN of a resource that a request names by name or by ARN.
func (g *Guard) named(service, kind, name string) string {
	if strings.HasPrefix(name, "arn:") {
		return name
	}
	return g.arn(service, kind+strings.TrimPrefix(name, "/"))
}

// requested returns the condition keys of the tags in a request, added to context.
func requested(context map[string]any, tags map[string]string) map[string]any {
	out := maps.Clone(context)
	if len(tags) == 0 {
		return out
	}
	if out == nil {
		out = map[string]any{}
	}
	var keys []any
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out["aws:RequestTag/"+k], keys = tags[k], append(keys, k)
	}
	out["aws:TagKeys"] = keys
	return out
}

// withTags adds the condition keys of the tags in a request that makes a resource, and the call
// of the permission to tag. IAM compares the tags of the request there as those of the resource.
func withTags(calls []Call, action string, tags map[string]string) []Call {
	if len(tags) == 0 {
		return calls
	}
	for i, c := range calls {
		calls[i].Context = requested(c.Context, tags)
	}
	context := maps.Clone(calls[0].Context)
	for k, v := range tags {
		context["aws:ResourceTag/"+k] = v
	}
	return append(calls, Call{Action: action, Resource: calls[0].Resource, Context: context})
}

// pairs returns tags that a request has as a list.
func pairs(list []struct{ Key, Value string }) map[string]string {
	out := map[string]string{}
	for _, t := range list {
		out[t.Key] = t.Value
	}
	return out
}

func (g *Guard) sqs(operation string, _ *http.Request, body []byte) ([]Call, error) {
	var in struct {
		QueueUrl, QueueName string
		Tags                map[string]string `json:"tags"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, unknown("%w", err)
	}
	name := in.QueueUrl[strings.LastIndex(in.QueueUrl, "/")+1:]
	if name == "" {
		name = in.QueueName
	}
	if name == "" || strings.HasSuffix(operation, "agQueue") {
		return nil, unknown("%s names no queue, or only tags one", operation)
	}
	calls := []Call{{Action: "sqs:" + strings.TrimSuffix(operation, "Batch"), Resource: g.arn("sqs", name), Existing: operation != "CreateQueue"}}
	return withTags(calls, "sqs:TagQueue", in.Tags), nil
}

func (g *Guard) logs(operation string, _ *http.Request, body []byte) ([]Call, error) {
	var in struct {
		LogGroupName, LogStreamName, RoleArn, KmsKeyId, ResourceArn string
		Tags                                                        map[string]string
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, unknown("%w", err)
	}
	switch operation {
	case "DescribeLogGroups": // has no resource
		return []Call{{Action: "logs:DescribeLogGroups", Resource: "*"}}, nil
	case "ListTagsForResource":
		return []Call{{Action: "logs:ListTagsForResource", Resource: strings.TrimSuffix(in.ResourceArn, ":*"), Existing: true}}, nil
	}
	if in.LogGroupName == "" || in.RoleArn != "" || in.KmsKeyId != "" {
		return nil, unknown("%s names no log group, or a role or a key", operation)
	}
	resource, existing := "log-group:"+in.LogGroupName, operation != "CreateLogGroup"
	if in.LogStreamName != "" {
		resource, existing = resource+":log-stream:"+in.LogStreamName, false // a stream has no tags
	}
	return withTags([]Call{{Action: "logs:" + operation, Resource: g.arn("logs", resource), Existing: existing}}, "logs:TagResource", in.Tags), nil
}

// uuidLength is the length of a key's id.
const uuidLength = len("00000000-0000-0000-0000-000000000000")

func (g *Guard) kms(operation string, _ *http.Request, body []byte) ([]Call, error) {
	var in struct {
		KeyId, SigningAlgorithm, MessageType, MacAlgorithm, EncryptionAlgorithm string
		EncryptionContext                                                       map[string]string
		GrantTokens                                                             []string
		CiphertextBlob                                                          []byte
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, unknown("%w", err)
	}
	if in.KeyId == "" && len(in.CiphertextBlob) > uuidLength { // a ciphertext names its key, in moto by its first bytes
		in.KeyId = string(in.CiphertextBlob[:uuidLength])
	}
	if in.KeyId == "" || strings.Contains(in.KeyId, "alias/") || len(in.GrantTokens) > 0 || strings.HasPrefix(operation, "ReEncrypt") {
		return nil, unknown("%s names no key by its id, or a grant, or two keys", operation)
	}
	context := map[string]any{"kms:CallerAccount": g.Account}
	for key, value := range map[string]string{"kms:SigningAlgorithm": in.SigningAlgorithm, "kms:MessageType": in.MessageType, "kms:MacAlgorithm": in.MacAlgorithm,
		"kms:EncryptionAlgorithm": in.EncryptionAlgorithm} {
		if value != "" {
			context[key] = value
		}
	}
	for k, v := range in.EncryptionContext {
		context["kms:EncryptionContext:"+k] = v
	}
	return []Call{{Action: "kms:" + operation, Resource: g.named("kms", "key/", in.KeyId), Context: context}}, nil
}

// throughService returns the call by which a service uses a key for the caller.
func (g *Guard) throughService(service, action, key string) Call {
	return Call{Action: "kms:" + action, Resource: g.named("kms", "key/", key),
		Context: map[string]any{"kms:CallerAccount": g.Account, "kms:ViaService": service + "." + g.Region + ".amazonaws.com"}}
}

func (g *Guard) events(operation string, _ *http.Request, body []byte) ([]Call, error) {
	var in struct {
		Entries []struct{ EventBusName, Source, DetailType string }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, unknown("%w", err)
	}
	sources, types := map[string][]any{}, map[string][]any{} // by bus
	for _, e := range in.Entries {
		bus := g.named("events", "event-bus/", e.EventBusName)
		sources[bus], types[bus] = append(sources[bus], e.Source), append(types[bus], e.DetailType)
	}
	if operation != "PutEvents" || len(sources) == 0 || sources[g.arn("events", "event-bus/")] != nil {
		return nil, unknown("%s, or an entry without a bus", operation)
	}
	var calls []Call
	for bus := range sources {
		calls = append(calls, Call{Action: "events:PutEvents", Resource: bus, Context: map[string]any{"events:source": distinct(sources[bus]), "events:detail-type": distinct(types[bus])}})
	}
	return calls, nil
}

func distinct(values []any) []any {
	var out []any
	for _, v := range values {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// AddPlainParameter names a parameter that no key encrypts, whether it exists or not: SSM ignores for it that a request asks for the
// decryption.
func (g *Guard) AddPlainParameter(name string) { add(g, g.plain, name, struct{}{}) }

func (g *Guard) ssm(operation string, _ *http.Request, body []byte) ([]Call, error) {
	var in struct {
		Name           string
		Type           string
		WithDecryption bool
		Tags           []struct{ Key, Value string }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, unknown("%w", err)
	}
	_, plain := get(g, g.plain, in.Name)
	if in.Name == "" || in.WithDecryption && !plain || in.Type == "SecureString" {
		return nil, unknown("%s names no parameter, or one that a key encrypts", operation)
	}
	return withTags([]Call{{Action: "ssm:" + operation, Resource: g.named("ssm", "parameter/", in.Name)}}, "ssm:AddTagsToResource", pairs(in.Tags)), nil
}

// codebuild knows the calls of a build. An override of StartBuild is a condition key, or is refused here.
func (g *Guard) codebuild(operation string, _ *http.Request, body []byte) ([]Call, error) {
	var in struct {
		ProjectName, BuildspecOverride, ID, IdempotencyToken string
		IDs                                                  []string
		EnvironmentVariablesOverride, LogsConfigOverride     any // have no condition keys that a policy here compares
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return nil, unknown("%w", err)
	}
	of := func(project string, context map[string]any) Call {
		return Call{Action: "codebuild:" + operation, Resource: g.arn("codebuild", "project/"+project), Context: context}
	}
	var calls []Call
	switch operation {
	case "StartBuild":
		context := map[string]any{}
		if in.BuildspecOverride != "" {
			context["codebuild:source.buildspec"] = in.BuildspecOverride
		}
		return []Call{of(in.ProjectName, context)}, nil
	case "StopBuild":
		in.IDs = []string{in.ID}
	case "BatchGetBuilds":
	default:
		return nil, unknown("%s", operation)
	}
	for _, id := range in.IDs {
		project, _, ok := strings.Cut(id, ":")
		if !ok {
			return nil, unknown("%q is not the ID of a build", id)
		}
		calls = append(calls, of(project, nil))
	}
	return calls, nil
}

// lambda knows only invocations, whose path names the function by its ARN.
func (g *Guard) lambda(_ string, r *http.Request, _ []byte) ([]Call, error) {
	path, ok := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/2015-03-31/functions/"), "/invocations")
	arn, err := url.PathUnescape(path)
	if !ok || err != nil || !strings.HasPrefix(arn, "arn:") {
		return nil, unknown("%s %s does not invoke a function by its ARN", r.Method, r.URL.Path)
	}
	return []Call{{Action: "lambda:InvokeFunction", Resource: arn}}, nil
}

func (g *Guard) secrets(operation string, _ *http.Request, body []byte) ([]Call, error) {
	var in struct{ SecretId string }
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, unknown("%w", err)
	}
	if arn, ok := get(g, g.secretOf, in.SecretId); ok {
		in.SecretId = arn
	}
	if !strings.HasPrefix(in.SecretId, "arn:") { // the ARN has a random suffix
		return nil, unknown("%s names no known secret, and none by its ARN", operation)
	}
	return []Call{{Action: "secretsmanager:" + operation, Resource: in.SecretId}}, nil
}

func (g *Guard) ecr(operation string, _ *http.Request, body []byte) ([]Call, error) {
	if operation == "GetAuthorizationToken" {
		return []Call{{Action: "ecr:GetAuthorizationToken", Resource: "*"}}, nil
	}
	var in struct {
		RepositoryName          string
		Tags                    []struct{ Key, Value string }
		EncryptionConfiguration struct{ KmsKey string }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, unknown("%w", err)
	}
	if in.RepositoryName == "" || in.EncryptionConfiguration.KmsKey != "" {
		return nil, unknown("%s names no repository, or a key", operation)
	}
	return withTags([]Call{{Action: "ecr:" + operation, Resource: g.arn("ecr", "repository/"+in.RepositoryName)}}, "ecr:TagResource", pairs(in.Tags)), nil
}

// RegistryCalls returns the calls of a request to the registry of ECR, such as
// GET /v2/NAME/manifests/TAG. A request that names no repository, such as the login, needs
// no permission.
func (g *Guard) RegistryCalls(r *http.Request) ([]Call, error) {
	if r.URL.Path == "/v2/" || r.URL.Path == "/v2" {
		return nil, nil
	}
	path := strings.TrimPrefix(r.URL.Path, "/v2/")
	i := max(strings.LastIndex(path, "/blobs/"), strings.LastIndex(path, "/manifests/"), strings.LastIndex(path, "/tags/"), strings.LastIndex(path, "/referrers/"))
	if i < 0 {
		return nil, unknown("%s %s", r.Method, r.URL.Path)
	}
	kind, _, _ := strings.Cut(path[i+1:], "/")
	if upload := strings.HasPrefix(path[i+1:], "blobs/uploads"); upload {
		kind = "uploads"
	}
	action, ok := map[string]string{
		"GET manifests": "BatchGetImage", "HEAD manifests": "BatchGetImage", "PUT manifests": "PutImage", "DELETE manifests": "BatchDeleteImage",
		"GET referrers": "BatchGetImage", // as ECR's ListImageReferrers
		"GET blobs":     "GetDownloadUrlForLayer", "HEAD blobs": "BatchCheckLayerAvailability", "GET tags": "ListImages",
		"POST uploads": "InitiateLayerUpload", "PATCH uploads": "UploadLayerPart", "PUT uploads": "CompleteLayerUpload", "GET uploads": "UploadLayerPart",
	}[r.Method+" "+kind]
	if !ok {
		return nil, unknown("%s %s", r.Method, r.URL.Path)
	}
	return []Call{{Action: "ecr:" + action, Resource: g.arn("ecr", "repository/"+path[:i]), Existing: true}}, nil
}

func (g *Guard) ecs(operation string, _ *http.Request, body []byte) ([]Call, error) {
	var in struct {
		Cluster, ClusterName, Service, ServiceName, Family, TaskDefinition, Task, PropagateTags, ResourceArn string
		TaskRoleArn, ExecutionRoleArn                                                                        string
		Clusters, Services, Tasks                                                                            []string
		Overrides                                                                                            struct{ TaskRoleArn, ExecutionRoleArn string }
		Tags                                                                                                 []struct{ Key, Value string }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, unknown("%w", err)
	}
	if in.Cluster == "" && strings.Contains(operation, "Task") && !strings.HasSuffix(operation, "TaskDefinition") || operation == "RunTask" && in.PropagateTags != "" && in.PropagateTags != "NONE" {
		return nil, unknown("%s names no cluster, or copies tags", operation)
	}
	cluster := g.named("ecs", "cluster/", in.Cluster)
	name := cluster[strings.LastIndex(cluster, "/")+1:]
	context := map[string]any{"ecs:cluster": cluster}
	pass := func(calls []Call, roles ...string) []Call {
		for _, role := range roles {
			if role != "" {
				calls = append(calls, Call{Action: "iam:PassRole", Resource: role, Context: map[string]any{"iam:PassedToService": "ecs-tasks.amazonaws.com"}})
			}
		}
		return calls
	}
	// tag adds the call of the permission to tag what the request makes. ECS compares the tags of
	// the request as aws:RequestTag only.
	tag := func(calls []Call, resource string) []Call {
		if len(in.Tags) == 0 {
			return calls
		}
		return append(calls, Call{Action: "ecs:TagResource", Resource: resource, Context: requested(map[string]any{"ecs:CreateAction": operation}, pairs(in.Tags))})
	}
	on := func(resources []string, kind string, context map[string]any) (calls []Call) {
		for _, r := range resources {
			calls = append(calls, Call{Action: "ecs:" + operation, Resource: g.named("ecs", kind, r), Context: context, Existing: true})
		}
		return calls
	}
	switch operation {
	case "RunTask":
		calls := pass([]Call{{Action: "ecs:RunTask", Resource: g.named("ecs", "task-definition/", in.TaskDefinition), Context: context}}, in.Overrides.TaskRoleArn, in.Overrides.ExecutionRoleArn)
		return tag(calls, g.arn("ecs", "task/"+name+"/*")), nil // ECS chooses the task's id later
	case "StopTask":
		return on([]string{in.Task}, "task/"+name+"/", context), nil
	case "DescribeTasks":
		return on(in.Tasks, "task/"+name+"/", context), nil
	case "ListTasks": // has no resource for tasks on Fargate
		return []Call{{Action: "ecs:ListTasks", Resource: "*", Context: context}}, nil
	case "CreateCluster":
		resource := g.arn("ecs", "cluster/"+in.ClusterName)
		return tag([]Call{{Action: "ecs:CreateCluster", Resource: resource, Context: requested(nil, pairs(in.Tags))}}, resource), nil
	case "DescribeClusters":
		return on(in.Clusters, "cluster/", nil), nil
	case "DeleteCluster", "PutClusterCapacityProviders", "UpdateCluster", "UpdateClusterSettings":
		return on([]string{in.Cluster}, "cluster/", nil), nil
	case "RegisterTaskDefinition":
		if in.Family == "" {
			break
		}
		resource := g.arn("ecs", "task-definition/"+in.Family+":*") // ECS chooses the revision
		calls := pass([]Call{{Action: "ecs:RegisterTaskDefinition", Resource: resource, Context: requested(nil, pairs(in.Tags))}}, in.TaskRoleArn, in.ExecutionRoleArn)
		return tag(calls, resource), nil
	case "DescribeTaskDefinition", "DeregisterTaskDefinition": // have no resource
		return []Call{{Action: "ecs:" + operation, Resource: "*"}}, nil
	case "CreateService":
		resource := g.arn("ecs", "service/"+name+"/"+in.ServiceName)
		return tag([]Call{{Action: "ecs:CreateService", Resource: resource, Context: requested(context, pairs(in.Tags))}}, resource), nil
	case "UpdateService", "DeleteService":
		return on([]string{in.Service}, "service/"+name+"/", context), nil
	case "DescribeServices":
		return on(in.Services, "service/"+name+"/", context), nil
	case "ListTagsForResource":
		return on([]string{in.ResourceArn}, "", nil), nil
	case "TagResource":
		return on([]string{in.ResourceArn}, "", requested(nil, pairs(in.Tags))), nil
	}
	return nil, unknown("%s", operation)
}

// item is an item or a key of DynamoDB.
type item = map[string]map[string]any

// access is the part of a request to DynamoDB that names one item or one table.
type access struct {
	TableName, IndexName string
	Key, Item            item
}

// partitionOf finds the value of the partition key in the condition of a query, which begins with it in the requests of this module.
var partitionOf = pattern.New(`^\w+ = (:\w+)(?: AND |$)`)

func (g *Guard) dynamodb(operation string, r *http.Request, body []byte) ([]Call, error) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Target"), "DynamoDB_20120810.") {
		return nil, unknown("%s", r.Header.Get("X-Amz-Target"))
	}
	var in struct {
		access
		TransactItems             []map[string]access
		RequestItems              json.RawMessage
		KeyConditionExpression    string
		ExpressionAttributeValues item
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, unknown("%w", err)
	}
	var of []access // items or tables
	var actions []string
	add := func(action string, a access) { actions, of = append(actions, action), append(of, a) }
	switch operation {
	case "TransactWriteItems", "TransactGetItems":
		for _, entry := range in.TransactItems {
			for kind, a := range entry {
				action, ok := map[string]string{"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem", "Get": "GetItem"}[kind]
				if !ok {
					return nil, unknown("%s with %s", operation, kind)
				}
				add(action, a)
			}
		}
	case "BatchGetItem":
		var tables map[string]struct{ Keys []item }
		if err := json.Unmarshal(in.RequestItems, &tables); err != nil {
			return nil, unknown("%w", err)
		}
		for name, t := range tables {
			for _, key := range t.Keys {
				add(operation, access{TableName: name, Key: key})
			}
		}
	case "BatchWriteItem":
		var tables map[string][]struct {
			PutRequest    struct{ Item item }
			DeleteRequest struct{ Key item }
		}
		if err := json.Unmarshal(in.RequestItems, &tables); err != nil {
			return nil, unknown("%w", err)
		}
		for name, requests := range tables {
			for _, request := range requests {
				add(operation, access{TableName: name, Key: request.DeleteRequest.Key, Item: request.PutRequest.Item})
			}
		}
	default:
		add(operation, in.access)
	}
	if len(of) == 0 {
		return nil, unknown("%s names no table", operation)
	}
	// The keys of one request to a table form one list.
	keys := map[string][]any{}
	for _, a := range of {
		table, ok := get(g, g.tables, tableName(a.TableName))
		if !ok {
			return nil, unknown("%s on the table %q", operation, a.TableName)
		}
		for _, attributes := range []item{a.Key, a.Item} {
			for _, value := range attributes[table.PartitionKey] {
				keys[a.TableName] = append(keys[a.TableName], value)
			}
		}
	}
	if m := partitionOf.FindStringSubmatch(in.KeyConditionExpression); m != nil {
		for _, value := range in.ExpressionAttributeValues[m[1]] { // of a query; of an index, IAM compares the index's key
			keys[in.TableName] = append(keys[in.TableName], value)
		}
	}
	var calls []Call
	for i, a := range of {
		resource := g.named("dynamodb", "table/", a.TableName)
		if a.IndexName != "" {
			resource += "/index/" + a.IndexName
		}
		context := map[string]any{"dynamodb:LeadingKeys": underivable{}}
		if leading := distinct(keys[a.TableName]); len(leading) > 0 {
			context["dynamodb:LeadingKeys"] = leading
		} else if operation == "Scan" {
			clear(context) // has no key, and IAM sees none
		}
		calls = append(calls, Call{Action: "dynamodb:" + actions[i], Resource: resource, Context: context})
		if table, _ := get(g, g.tables, tableName(a.TableName)); table.Key != "" {
			calls = append(calls, g.throughService("dynamodb", "Decrypt", table.Key))
		}
	}
	return calls, nil
}

// tableName returns the name of a table that a request names by name or by ARN.
func tableName(name string) string { return name[strings.LastIndex(name, "/")+1:] }

// object returns the bucket and the object's key that a request names, in its host or in
// its path; the key is "" if the request is for the bucket.
func (g *Guard) object(r *http.Request) (bucket, key string) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	if name, ok := strings.CutSuffix(r.Host, ".s3."+g.Region+".amazonaws.com"); ok {
		return name, path
	}
	bucket, key, _ = strings.Cut(path, "/")
	return bucket, key
}

func (g *Guard) s3(_ string, r *http.Request, body []byte) ([]Call, error) {
	bucket, key := g.object(r)
	if key == "" {
		if call, ok := onBucket(bucket, r, body); ok {
			return call, nil
		}
	}
	encryption, ok := get(g, g.buckets, bucket)
	if !ok && key != "" { // the permissions for an object depend on the bucket's key
		return nil, unknown("the bucket %q", bucket)
	}
	if own := r.Header.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"); own != "" {
		encryption = own
	}
	onBucket, onObject := "arn:aws:s3:::"+bucket, "arn:aws:s3:::"+bucket+"/"+key
	query := r.URL.Query()
	for name := range query { // what does not change the permissions
		if strings.HasPrefix(name, "X-Amz-") || slices.Contains([]string{"x-id", "list-type", "prefix", "delimiter", "max-keys", "continuation-token", "start-after", "encoding-type", "partNumber"}, name) {
			query.Del(name)
		}
	}
	if r.Header.Get("X-Amz-Copy-Source") != "" || r.Header.Get("X-Amz-Acl") != "" || r.Header.Get("X-Amz-Tagging") != "" {
		return nil, unknown("a copy, or an object with rights or tags of its own")
	}
	kind := "object"
	if key == "" {
		kind = "bucket"
	}
	for _, name := range []string{"uploads", "uploadId", "versionId", "versions", "versioning", "location", "delete"} {
		if query.Has(name) {
			kind += "?" + name
			query.Del(name)
		}
	}
	if len(query) > 0 {
		return nil, unknown("%s %s with %s", r.Method, kind, query.Encode())
	}
	switch c := r.Method + " " + kind; c {
	case "GET bucket", "HEAD bucket":
		context := map[string]any{}
		if prefix := r.URL.Query(); prefix.Has("prefix") {
			context["s3:prefix"] = prefix.Get("prefix")
		}
		return []Call{{Action: "s3:ListBucket", Resource: onBucket, Context: context}}, nil
	case "GET bucket?versions":
		return []Call{{Action: "s3:ListBucketVersions", Resource: onBucket}}, nil
	case "GET bucket?versioning":
		return []Call{{Action: "s3:GetBucketVersioning", Resource: onBucket}}, nil
	case "GET bucket?location":
		return []Call{{Action: "s3:GetBucketLocation", Resource: onBucket}}, nil
	case "POST bucket?delete":
		return deletes(bucket, body)
	case "DELETE object":
		return []Call{{Action: "s3:DeleteObject", Resource: onObject}}, nil
	case "DELETE object?versionId":
		return []Call{{Action: "s3:DeleteObjectVersion", Resource: onObject}}, nil
	case "DELETE object?uploadId":
		return []Call{{Action: "s3:AbortMultipartUpload", Resource: onObject}}, nil
	case "GET object", "HEAD object", "GET object?versionId", "HEAD object?versionId":
		action := "s3:GetObject"
		if strings.HasSuffix(c, "versionId") {
			action = "s3:GetObjectVersion"
		}
		return g.encrypted([]Call{{Action: action, Resource: onObject}}, encryption, "Decrypt"), nil
	case "PUT object", "POST object?uploads":
		context := map[string]any{}
		for header, condition := range map[string]string{"X-Amz-Server-Side-Encryption": "s3:x-amz-server-side-encryption",
			"X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "s3:x-amz-server-side-encryption-aws-kms-key-id", "If-None-Match": "s3:if-none-match", "If-Match": "s3:if-match"} {
			if value := r.Header.Get(header); value != "" {
				context[condition] = value
			}
		}
		return g.encrypted([]Call{{Action: "s3:PutObject", Resource: onObject, Context: context}}, encryption, "GenerateDataKey"), nil
	case "PUT object?uploadId", "POST object?uploadId": // S3 opens the key of the parts before
		return g.encrypted([]Call{{Action: "s3:PutObject", Resource: onObject}}, encryption, "Decrypt"), nil
	default:
		return nil, unknown("%s", c)
	}
}

// settings has the part of an action's name for a setting of a bucket, by the name in the query.
var settings = map[string]string{
	"accelerate": "AccelerateConfiguration", "acl": "BucketAcl", "cors": "BucketCORS", "encryption": "EncryptionConfiguration", "lifecycle": "LifecycleConfiguration", "logging": "BucketLogging",
	"object-lock": "BucketObjectLockConfiguration", "ownershipControls": "BucketOwnershipControls", "policy": "BucketPolicy", "publicAccessBlock": "BucketPublicAccessBlock",
	"replication": "ReplicationConfiguration", "requestPayment": "BucketRequestPayment", "tagging": "BucketTagging", "versioning": "BucketVersioning", "website": "BucketWebsite",
}

// onBucket returns the calls of a request that makes or removes a bucket, or that reads or changes
// one of its settings; false: it is another request. A bucket has no tags for IAM unless its owner
// lets IAM compare them.
func onBucket(bucket string, r *http.Request, body []byte) ([]Call, bool) {
	resource, query := "arn:aws:s3:::"+bucket, r.URL.Query()
	query.Del("x-id")
	if len(query) == 0 && r.Method == http.MethodDelete {
		return []Call{{Action: "s3:DeleteBucket", Resource: resource}}, true
	}
	if len(query) == 0 && r.Method == http.MethodPut {
		var in struct {
			Tags []struct{ Key, Value string } `xml:"Tags>Tag"`
		}
		acl := r.Header.Get("X-Amz-Acl")
		if err := xml.Unmarshal(body, &in); err != nil && len(body) > 0 || acl != "" && acl != "private" { // other rights need s3:PutBucketAcl
			return nil, false
		}
		calls := []Call{{Action: "s3:CreateBucket", Resource: resource, Context: requested(nil, pairs(in.Tags))}}
		if len(in.Tags) > 0 {
			calls = append(calls, Call{Action: "s3:TagResource", Resource: resource, Context: calls[0].Context})
		}
		return calls, true
	}
	for name, setting := range settings {
		verb := map[string]string{http.MethodGet: "Get", http.MethodPut: "Put", http.MethodDelete: "Put"}[r.Method]
		if r.Method == http.MethodDelete && name == "policy" || r.Method == http.MethodDelete && name == "website" {
			verb = "Delete"
		}
		// A key of the bucket would change the permissions that its objects need.
		if !query.Has(name) || len(query) > 1 || verb == "" || verb == "Put" && bytes.Contains(body, []byte("KMSMasterKeyID")) {
			continue
		}
		return []Call{{Action: "s3:" + verb + setting, Resource: resource}}, true
	}
	return nil, false
}

// s3control knows only the tags of a bucket, whose ARN the path names.
func (g *Guard) s3control(_ string, r *http.Request, _ []byte) ([]Call, error) {
	arn, ok := strings.CutPrefix(r.URL.Path, "/v20180820/tags/")
	if r.Method != http.MethodGet || !ok || !strings.HasPrefix(arn, "arn:aws:s3:::") {
		return nil, unknown("%s %s", r.Method, r.URL.Path)
	}
	return []Call{{Action: "s3:ListTagsForResource", Resource: arn}}, nil
}

// encrypted adds the call for the key of a bucket's objects.
func (g *Guard) encrypted(calls []Call, key, action string) []Call {
	if key == "" {
		return calls
	}
	return append(calls, g.throughService("s3", action, key))
}

// deletes returns the calls of a request that deletes several objects.
func deletes(bucket string, body []byte) ([]Call, error) {
	var in struct {
		Object []struct{ Key, VersionId string }
	}
	if err := xml.Unmarshal(body, &in); err != nil || len(in.Object) == 0 {
		return nil, unknown("a deletion of no objects, %v", err)
	}
	var calls []Call
	for _, o := range in.Object {
		action := "s3:DeleteObject"
		if o.VersionId != "" {
			action = "s3:DeleteObjectVersion"
		}
		calls = append(calls, Call{Action: action, Resource: "arn:aws:s3:::" + bucket + "/" + o.Key})
	}
	return calls, nil
}
