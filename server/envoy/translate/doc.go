// Package translate builds Envoy's resources from a view. It is pure: equal views have equal translations.
package translate
