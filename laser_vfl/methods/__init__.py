"""LASER-VFL and the methods that the paper compares it with."""
