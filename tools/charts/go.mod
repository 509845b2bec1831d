// Module charts pins modules whose sources contain the public Helm charts with which tests compare.
module github.com/fairlead/fairlead/tools/charts

go 1.26.6

require (
	github.com/cert-manager/cert-manager v1.18.2
	sigs.k8s.io/external-dns v0.19.0
	sigs.k8s.io/metrics-server v0.8.0
)
