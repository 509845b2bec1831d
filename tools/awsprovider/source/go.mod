// Module source pins the source of the provider hashicorp/aws, which tools/awsprovider builds: version 6.34.0, as the Go module
// proxy has it of a public fork, whose module path is the original one. Nothing imports it, so `go mod tidy` would empty it.
module github.com/fairlead/fairlead/tools/awsprovider/source

go 1.26.8

require github.com/hashicorp/terraform-provider-aws v0.0.0-00010101000000-000000000000

replace github.com/hashicorp/terraform-provider-aws => github.com/upbound/terraform-provider-aws v0.0.0-20260305123303-f7691456b787
