// Package provider parses what Dubbo's providers register: URLs, instances of applications, their metadata, and the
// configurators that administrators add. It is pure: no I/O, no clock.
//
// The formats are those of Dubbo for Java 2.7.23, 3.2.19 and 3.3.6 and of dubbo-go 3.3.2, as observed.
package provider
