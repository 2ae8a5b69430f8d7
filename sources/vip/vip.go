// Package vip gives hosts virtual addresses that stay the same.
package vip
