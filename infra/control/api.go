package control

import (
	"cmp"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsroute53"
	"github.com/aws/jsii-runtime-go"
)

// accessLog is the format of one line of the access log. It has no header and no query
// string, because these can contain credentials. ms is a number, and not a string, because the
// metrics of latency take their values from it.
const accessLog = `{"time":"$context.requestTime","request":"$context.requestId","ip":"$context.identity.sourceIp","method":"$context.httpMethod",` +
	`"route":"$context.routeKey","status":"$context.status","bytes":"$context.responseLength","ms":$context.responseLatency,` +
	`"integration_ms":"$context.integrationLatency","error":"$context.error.message","integration_error":"$context.integrationErrorMessage"}`

// routes maps the routes of the API to the functions. API Gateway selects the most
// specific route of a request, and limits each route by itself. So requests of strangers,
// who have no session yet, and claims cannot use up the limit of the renewals and finishes
// of running jobs, which are below /runner/v1/jobs. A function of their own, sessionapi, serves
// strangers, so they cannot use up the executions of runnerapi either. rate is in requests a second; burst is
// the number of requests at once. With 0, the route has the limits of the props.
//
// A session needs two calls of STS, which allows 600 a second. TestCrowdUsesTheRoutes
// compares the limits with those of TestTenThousandAgentsStartAtOnce.
var routes = []struct {
	id, function, key string
	rate, burst       float64
}{
	{"ControlAPIRoute", "controlapi", "ANY /v1/{proxy+}", 0, 0},
	{"RunnerAPIRoute", "runnerapi", "ANY /runner/v1/{proxy+}", 0, 0},
	{"EnrolRoute", "sessionapi", "ANY /runner/v1/enrol", 50, 100},
	{"ChallengesRoute", "sessionapi", "ANY /runner/v1/challenges", 300, 600},
	{"SessionsRoute", "sessionapi", "ANY /runner/v1/sessions", 300, 600},
	{"ClaimsRoute", "runnerapi", "ANY /runner/v1/claims", 300, 600},
	{"JobsRoute", "runnerapi", "ANY /runner/v1/jobs/{proxy+}", 0, 0},
}

// servesAPI lists the functions that answer requests.
var servesAPI = []string{"controlapi", "sessionapi", "runnerapi"}

// makeAPI makes the HTTP API without its routes. The functions need the API's URL,
// and the routes need the functions.
func (b *builder) makeAPI() {
	b.api = awsapigatewayv2.NewCfnApi(b.stack, jsii.String("API"), &awsapigatewayv2.CfnApiProps{
		Name: jsii.String(b.name), Description: jsii.String("Fairlead's Control API and Runner API"), ProtocolType: jsii.String("HTTP"),
		// With a custom domain, API Gateway's own address still works: runners that were
		// installed before the domain use it, and both addresses have the same limits.
		DisableExecuteApiEndpoint: jsii.Bool(false),
	})
}

// url returns the public URL, without a trailing slash.
func (b *builder) url() string {
	if b.props.Domain != "" {
		return "https://" + b.props.Domain
	}
	return *b.api.AttrApiEndpoint()
}

// otherURLs returns the URLs of the API that only runners use which were installed earlier.
func (b *builder) otherURLs() []string {
	if b.props.Domain == "" {
		return nil
	}
	return []string{*b.api.AttrApiEndpoint()}
}

// connectAPI routes requests to the functions.
func (b *builder) connectAPI() {
	log := awslogs.NewCfnLogGroup(b.stack, jsii.String("APILog"), &awslogs.CfnLogGroupProps{
		LogGroupName: jsii.String("/aws/vendedlogs/" + b.name + "/api"), RetentionInDays: jsii.Number(float64(b.props.LogDays)),
	})
	b.logs["api"] = log.Ref()
	targets := map[string]*string{} // by function
	for _, name := range servesAPI {
		id, f := titles[name], b.aliases[name]
		integration := awsapigatewayv2.NewCfnIntegration(b.stack, jsii.String(id+"Integration"), &awsapigatewayv2.CfnIntegrationProps{
			ApiId: b.api.Ref(), IntegrationType: jsii.String("AWS_PROXY"), IntegrationUri: f.Ref(), PayloadFormatVersion: jsii.String("2.0"),
			TimeoutInMillis: jsii.Number(30_000),
		})
		targets[name] = jsii.String("integrations/" + *integration.Ref())
		b.allow(id+"Permission", name, "apigateway.amazonaws.com", b.arn("execute-api", *b.api.Ref()+"/*/*"))
	}
	limits := map[string]any{}
	for _, r := range routes {
		b.routes = append(b.routes, awsapigatewayv2.NewCfnRoute(b.stack, jsii.String(r.id), &awsapigatewayv2.CfnRouteProps{
			ApiId: b.api.Ref(), RouteKey: jsii.String(r.key), Target: targets[r.function], AuthorizationType: jsii.String("NONE"),
		}))
		// A route without settings would share the default limits with other such routes.
		limits[r.key] = map[string]any{"ThrottlingRateLimit": cmp.Or(r.rate, float64(b.props.RateLimit)),
			"ThrottlingBurstLimit": cmp.Or(r.burst, float64(b.props.BurstLimit)), "DetailedMetricsEnabled": false}
	}
	stage := awsapigatewayv2.NewCfnStage(b.stack, jsii.String("APIStage"), &awsapigatewayv2.CfnStageProps{
		ApiId: b.api.Ref(), StageName: jsii.String("$default"), AutoDeploy: jsii.Bool(true),
		AccessLogSettings: &awsapigatewayv2.CfnStage_AccessLogSettingsProperty{DestinationArn: log.AttrArn(), Format: jsii.String(accessLog)},
		DefaultRouteSettings: &awsapigatewayv2.CfnStage_RouteSettingsProperty{
			ThrottlingRateLimit: jsii.Number(float64(b.props.RateLimit)), ThrottlingBurstLimit: jsii.Number(float64(b.props.BurstLimit)),
			// CloudWatch bills metrics of each route as custom metrics, $12.60 a month. No alarm uses them: the latencies of
			// routes come from the access log.
			DetailedMetricsEnabled: jsii.Bool(false),
		},
		RouteSettings: limits,
	})
	for _, r := range b.routes { // API Gateway rejects settings of a route that does not exist
		stage.AddResourceDependency(r, nil)
	}
	if b.props.Domain == "" {
		return
	}
	domain := awsapigatewayv2.NewCfnDomainName(b.stack, jsii.String("Domain"), &awsapigatewayv2.CfnDomainNameProps{
		DomainName: jsii.String(b.props.Domain),
		DomainNameConfigurations: []*awsapigatewayv2.CfnDomainName_DomainNameConfigurationProperty{{
			CertificateArn: jsii.String(b.props.Certificate), EndpointType: jsii.String("REGIONAL"), SecurityPolicy: jsii.String("TLS_1_2"),
		}},
	})
	awsapigatewayv2.NewCfnApiMapping(b.stack, jsii.String("DomainMapping"), &awsapigatewayv2.CfnApiMappingProps{
		ApiId: b.api.Ref(), DomainName: domain.Ref(), Stage: stage.Ref(),
	})
	if b.props.HostedZone == "" {
		return
	}
	for _, kind := range []string{"A", "AAAA"} {
		awsroute53.NewCfnRecordSet(b.stack, jsii.String("Domain"+kind), &awsroute53.CfnRecordSetProps{
			Name: jsii.String(b.props.Domain), Type: jsii.String(kind), HostedZoneId: jsii.String(b.props.HostedZone),
			AliasTarget: &awsroute53.CfnRecordSet_AliasTargetProperty{
				DnsName: domain.AttrRegionalDomainName(), HostedZoneId: domain.AttrRegionalHostedZoneId(),
			},
		})
	}
}
