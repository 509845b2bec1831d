package main

import "testing"

func TestQuantiles(t *testing.T) {
	tests := []struct {
		name    string
		samples []float64
		q       float64
		want    float64
	}{
		{"one sample is every quantile", []float64{7}, 0.95, 7},
		{"the 95th percentile of ten is the largest", []float64{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, 0.95, 10},
		{"the 50th percentile of an even number is the lower middle", []float64{4, 1, 3, 2}, 0.5, 2},
		{"the 0th percentile is the smallest", []float64{2, 1}, 0, 1},
	}
	for _, test := range tests {
		if got := quantile(test.samples, test.q); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		samples []float64
		want    float64
	}{{[]float64{3, 1, 2}, 2}, {[]float64{4, 1, 2, 3}, 2.5}} {
		if got := median(test.samples); got != test.want {
			t.Errorf("median(%v) = %v, want %v", test.samples, got, test.want)
		}
	}
}
