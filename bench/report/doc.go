// Package report writes tables and plots.
package report
